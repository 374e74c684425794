"""`warpsmith run --dry-run` through its front door. Real runs are tested in tests/orchestration/test_run.py."""

import errno
import os
from pathlib import Path

import pytest
from click.testing import Result

from configs.load import load_config
from learners.patience import StorageDown
from learners.room import DiskFull
from orchestration import driver
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import LeaseLost
from orchestration.run.watchdog import Stalled


def test_dry_run_prints_the_plan_and_writes_nothing(warpsmith, tmp_path: Path) -> None:
    done = warpsmith("run", "local", "--dry-run", "contrastive_rl.steps=7")
    assert done.exit_code == 0, done.output
    assert "contrastive_rl" in done.stdout
    assert "24 tasks on cpu" in done.stdout
    assert list(tmp_path.iterdir()) == []


def refused(done: Result) -> str:
    """The one line of a refusal, which no plan precedes."""
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("sft.teachers=[bundled,absent.jsonl]", "sft.teachers: absent.jsonl cannot be read"),
        ("evaluator.verdicts_of=[runs/absent]", "evaluator.verdicts_of: runs/absent holds no config.yaml"),
        ("policy.model=./absent", "policy.model: the tokenizer of ./absent does not load"),
        ("rollout.endpoint.url=http://[/v1", "http://[/v1 is no address"),
    ],
)
def test_a_dry_run_refuses_what_a_run_would_not_find(warpsmith, word: str, says: str) -> None:
    words = [word, "rollout.endpoint.model=m", "schedule.phases=[vanilla]"] if "endpoint" in word else [word]
    line = refused(warpsmith("run", "local", *words, "--dry-run"))
    assert says in line
    assert line == refused(warpsmith("run", "local", *words)), "the run itself says the same"
    assert not Path("runs").exists(), "nothing was written"


def test_a_dry_run_refuses_a_name_that_another_run_has(warpsmith) -> None:
    RunDirectory("runs", "local").write_config(load_config("local"))
    assert warpsmith("run", "local", "contrastive_rl.steps=48", "--dry-run").exit_code == 0, "a run may be extended"
    assert "the run was started with another seed" in refused(warpsmith("run", "local", "seed=1", "--dry-run"))


def test_a_dry_run_asks_neither_the_hub_nor_a_bucket(warpsmith, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    done = warpsmith("run", "local", "policy.model=an/absent-model", "root=s3://absent/runs", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "memory is not estimated: policy.model: an/absent-model" in " ".join(done.stdout.split())


def test_a_dry_run_prints_the_memory_of_a_run_and_refuses_one_that_cannot_fit(warpsmith) -> None:
    done = warpsmith("run", "local", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "GiB each" in done.stdout
    sizes = ["policy.scratch.hidden_size=16384", "policy.scratch.layers=200", "policy.scratch.heads=128"]
    refused = warpsmith("run", "local", "--dry-run", *sizes)
    assert refused.exit_code == 2
    assert "learner" in refused.output


def test_a_stalled_run_ends_with_a_code_of_its_own(warpsmith, monkeypatch: pytest.MonkeyPatch) -> None:
    def stall(*_: object) -> None:
        raise Stalled("nothing has moved for 60 minutes (stall_minutes)")

    monkeypatch.setattr(driver, "run", stall)
    done = warpsmith("run", "local")
    assert done.exit_code == 3
    assert done.stderr == (
        "error: nothing has moved for 60 minutes (stall_minutes); the same command again goes on after the last "
        "committed step\n"
    )


def test_auto_stands_for_the_architecture_of_the_machine(warpsmith) -> None:
    done = warpsmith("run", "local", "--dry-run", "evaluator.arch=auto")
    assert done.exit_code == 0, done.output
    assert "24 tasks on auto" not in done.stdout
    assert "24 tasks on " in done.stdout


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DiskFull("/runs/demo: No space left on device"), "/runs/demo: No space left on device; the same command"),
        (
            OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/absent/store/hacks.parquet"),
            "/absent/store: Disk quota exceeded (",
        ),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "/runs/local: No space left on device ("),
        (StorageDown("s3://runs/demo: cannot read state.json"), "s3://runs/demo: cannot read state.json; the same"),
        (LeaseLost("s3://runs/demo: process 1 on a is running in it"), "process 1 on a is running in it\n"),
    ],
)
def test_a_run_that_its_file_system_stops_ends_with_one_line(
    warpsmith, monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("orchestration.driver.run", fail)
    done = warpsmith("run", "local")
    assert done.exit_code == 1
    assert line in done.stderr
    assert done.stderr.count("\n") == 1
    assert ("goes on after the last committed step" in done.stderr) == (not isinstance(error, LeaseLost))
