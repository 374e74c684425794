"""`warpsmith sweep --dry-run` through its front door. Real sweeps are tested in tests/orchestration/experiments."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestration.experiments.sweep import read_sweep
from orchestration.run.state import RunState

TEXT = "arms: [local, demo]\nseeds: [0, 5]\nsettings: ['tasks.source=bundled', 'policy.model=scratch']\n"


@pytest.fixture
def file() -> Path:
    """A sweep in the present folder."""
    path = Path("study.yml")
    path.write_text(TEXT)
    return path


def test_a_dry_run_lists_the_runs_and_says_which_are_finished(warpsmith, file: Path) -> None:
    trial = read_sweep(file).trials[1]
    trial.run.write_config(trial.config)
    trial.run.write_state(RunState(finished=True))
    done = warpsmith("sweep", str(file), "--dry-run")
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["local-s0", "demo-s0", "local-s5", "demo-s5"]
    assert [line[1:] for line in lines if line[0] == "demo-s0"] == [["finished"]]
    assert lines[3][-2:] == ["name=demo-s5", "seed=5"]
    assert sorted(path.name for path in Path("runs/study").iterdir()) == ["demo-s0"], "nothing else was written"


def test_a_dry_run_says_which_run_a_branch_begins_with(warpsmith, file: Path) -> None:
    Path("taught.yaml").write_text("schedule: {phases: [sft]}\n")
    Path("further.yaml").write_text("base: taught.yaml\nschedule: {phases: [sft, contrastive_rl]}\n")
    arms = "arms: [taught, further]\nseeds: [3]\nbranches: {further: taught}"
    file.write_text(TEXT.replace("arms: [local, demo]\nseeds: [0, 5]", arms))
    done = warpsmith("sweep", str(file), "--dry-run")
    assert done.exit_code == 0, done.output
    first, second = done.stdout.splitlines()
    assert first.endswith("name=taught-s3 seed=3")
    assert second.endswith("name=further-s3 seed=3  (a branch of taught-s3)")


def test_a_dry_run_checks_each_run_as_its_own_dry_run_does(warpsmith, file: Path) -> None:
    file.write_text(TEXT.replace("demo", "mine"))
    Path("mine.yaml").write_text("sft: {teachers: [bundled, absent.jsonl]}\n")
    done = warpsmith("sweep", str(file), "--dry-run")
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("error: mine-s0: sft.teachers: absent.jsonl cannot be read")
    assert done.stderr.count("\n") == 1
    assert done.stdout == "", "no list precedes it"
    assert not Path("runs").exists()
