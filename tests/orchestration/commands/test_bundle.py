"""`warpsmith bundle` and `warpsmith run --from-bundle` through their front door.

Runs here have finished, so that going on shows their report and starts nothing. Whole runs in two windows:
tests/orchestration/test_windows.py.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from orchestration.run.directory import RunDirectory
from tests.orchestration.run.bundled import SmallRun, begin_run, copy_of, small_policy, warpsmith


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    """A finished run, and its bundle."""
    folder = tmp_path_factory.mktemp("made")
    run = begin_run(folder / "runs", small_policy(folder / "policy"))
    run.commit(finished=True)
    done = run.bundle()
    assert done.exit_code == 0, done.output
    return run


@pytest.fixture
def small(tmp_path: Path, made: SmallRun) -> SmallRun:
    return copy_of(made, tmp_path / "runs")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere"


def refused(*arguments: str) -> str:
    """The line with which a command refuses."""
    done = warpsmith(*arguments)
    assert done.exit_code == 2, done.output
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_the_table_says_what_a_bundle_holds_and_leaves_out(small: SmallRun) -> None:
    output = small.bundle("--max-file-mib", "0.1").output
    for part in ("weights, moments", "configuration, state, buffer", "baselines, hack cases", "samples without texts"):
        assert part in output
    assert "merged weights of the checkpoint" in output
    files = list(small.folder.iterdir())
    assert max(path.stat().st_size for path in files) <= 0.1 * (1 << 20)
    assert f"1-contrastive_rl step 2, policy version 4; 0.4 of 60 MiB in {len(files)} files" in output


def test_a_bundle_goes_on_elsewhere_and_the_same_command_again_goes_on_with_that(small: SmallRun, root: Path) -> None:
    command = ("run", "--from-bundle", str(small.folder), f"root={root}")
    first = warpsmith(*command)
    assert first.exit_code == 0, first.output
    for stage in ("base", "sft"):
        assert stage in first.output
    run = RunDirectory(str(root), "demo")
    state = run.read_state()
    assert state == small.run.read_state()
    assert run.read_config().root == str(root)
    later = {**vars(state), "policy_version": 9}
    run.write_state(type(state)(**later))
    second = warpsmith(*command)
    assert second.exit_code == 0, second.output
    assert run.read_state() == type(state)(**later), "it goes on from where the run is, not from the bundle"


def test_a_run_may_get_another_name_and_its_model_another_place(small: SmallRun, root: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(small.policy, tmp_path / "moved")
    options = (f"root={root}", "name=second", f"policy.model={moved}")
    done = warpsmith("run", "--from-bundle", str(small.folder), *options)
    assert done.exit_code == 0, done.output
    run = RunDirectory(str(root), "second")
    assert (run.read_config().name, run.read_config().policy.model) == ("second", str(moved))
    state = run.read_state()
    assert state is not None
    assert "changed" not in state.extra, "nothing of the experiment has changed"


def test_a_bundle_is_reported_and_published_where_its_model_is_not(small: SmallRun, tmp_path: Path) -> None:
    of_run = warpsmith("report", str(small.path))
    (small.policy / "config.json").rename(small.policy / "away")
    before = sorted(tmp_path.iterdir())
    try:
        of_bundle = warpsmith("report", str(small.folder), "--publish", str(tmp_path / "of_bundle"))
    finally:
        (small.policy / "away").rename(small.policy / "config.json")
    assert of_bundle.exit_code == 0, of_bundle.output
    tables = [one.output.split("\n", 1)[1].split(str(tmp_path))[0] for one in (of_run, of_bundle)]
    assert tables[0] == tables[1]
    assert str(small.folder) in of_bundle.output.splitlines()[0]
    assert (tmp_path / "of_bundle" / "README.md").is_file()
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "of_bundle"])


def test_a_dry_run_prints_the_plan_and_writes_nothing(small: SmallRun, root: Path) -> None:
    done = warpsmith("run", "--from-bundle", str(small.folder), f"root={root}", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "contrastive_rl" in done.output
    assert not root.exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["seed=5"], "another seed"),
        (["rollout.temperature=0.5"], "another rollout.temperature"),
        (["learner.zero_stag=1"], "learner.zero_stag"),
        (["local"], "--from-bundle takes the run's own configuration, not local"),
        (["policy.model=/no/such/model"], "policy.model: /no/such/model is not on this machine"),
    ],
)
def test_what_a_resume_does_not_allow_is_refused_and_nothing_is_written(
    small: SmallRun, root: Path, words: list[str], expected: str
) -> None:
    assert expected in refused("run", "--from-bundle", str(small.folder), *words, f"root={root}")
    assert not root.exists()


def test_another_base_model_is_refused(small: SmallRun, root: Path, tmp_path: Path) -> None:
    other = small_policy(tmp_path / "other", seed=4)
    line = refused("run", "--from-bundle", str(small.folder), f"policy.model={other}", f"root={root}")
    assert f"policy.model={other} is not the model that the run began with (model.safetensors differs" in line
    assert not root.exists()


def test_a_damaged_bundle_is_refused_and_nothing_is_written(small: SmallRun, root: Path) -> None:
    part = small.folder / "part-000.bin"
    part.write_bytes(part.read_bytes()[:-1])
    assert f"{part} is damaged" in refused("run", "--from-bundle", str(small.folder), f"root={root}")
    assert "is no bundle" in refused("run", "--from-bundle", str(small.policy), f"root={root}")
    assert not root.exists()


def test_a_run_directory_of_another_run_or_of_an_earlier_step_is_left_alone(small: SmallRun, root: Path) -> None:
    other = copy_of(small, root)
    other.run.write_identity("0" * 32)
    before = {path: path.stat().st_mtime_ns for path in other.path.rglob("*")}
    line = refused("run", "--from-bundle", str(small.folder), f"root={root}")
    assert f"{root}/demo holds another run than {small.folder}; choose another name=..." in line
    assert {path: path.stat().st_mtime_ns for path in other.path.rglob("*")} == before
    shutil.rmtree(root)
    assert warpsmith("run", "--from-bundle", str(small.folder), f"root={root}").exit_code == 0
    small.commit(policy_version=9)
    assert small.bundle().exit_code == 0
    line = refused("run", "--from-bundle", str(small.folder), f"root={root}")
    assert f"{root}/demo stands at policy version 4, before {small.folder} with 9" in line


def test_what_cannot_be_bundled_is_refused(small: SmallRun, tmp_path: Path) -> None:
    assert "not a run directory" in refused("bundle", str(tmp_path / "nowhere"), "--output", str(tmp_path / "b"))
    line = refused("bundle", str(small.path), "--output", str(small.policy))
    assert f"{small.policy} is there and is no bundle" in line
    os.remove(small.path / "state.json")
    line = refused("bundle", str(small.path), "--output", str(tmp_path / "b"))
    assert "has not committed anything" in line
    assert not (tmp_path / "b").exists()
