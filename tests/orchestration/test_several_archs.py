"""A whole run that judges on three architectures: rewards over two, portability on the third. Killed and resumed."""

from __future__ import annotations

import os
import signal
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from orchestration.report import build_report
from orchestration.report.tables import portability_table
from orchestration.run.directory import RunDirectory
from tests.orchestration.processes import HANG_SECONDS, pids_of, start, wait_for

SEVERAL = [
    "evaluation.archs={A100: {share: 1.0}, L40S: {share: 0.5}}",
    "evaluation.reward=worst",
    "schedule.phases=[sft,contrastive_rl]",
    "contrastive_rl.steps=2",
    "assessment.constant_policies=false",
    "tasks.held_out.tasks=[]",
    "tracking.enabled=false",
]


class Finished(NamedTuple):
    """A run that was killed after its first step of contrastive RL, and what its second process printed."""

    run: RunDirectory
    output: str


def kill_and_finish(root: Path) -> Finished:
    run = RunDirectory(str(root), "small")
    with tempfile.TemporaryDirectory(prefix="ws-", dir="/tmp") as folder:  # a socket's path may have 107 bytes
        (Path(folder) / "ray").mkdir()
        before = os.environ.get("RAY_TMPDIR")
        os.environ["RAY_TMPDIR"] = folder
        try:
            program = ("-m", "tests.orchestration.several_archs")
            first = start(root, *SEVERAL, program=program)
            try:
                wait_for(first, run, "contrastive_rl", 1)
            finally:
                _kill_all_of(root)
                first.communicate(timeout=60)
            second = start(root, *SEVERAL, program=program)
            output, _ = second.communicate(timeout=HANG_SECONDS)
            _kill_all_of(root)
        finally:
            os.environ.pop("RAY_TMPDIR")
            if before is not None:
                os.environ["RAY_TMPDIR"] = before
    assert second.returncode == 0, output
    return Finished(run, output)


def _kill_all_of(root: Path) -> None:
    """The driver, and the cluster that it started."""
    for process in pids_of(root):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


IN_BACKGROUND = {"several": kill_and_finish}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def several(in_background) -> Finished:  # type: ignore[no-untyped-def]
    found: Finished = in_background("several")
    return found


def test_every_program_of_the_policy_is_judged_on_each_architecture_that_rewards_are_over(several: Finished) -> None:
    rows = several.run.verdicts.read(columns=["candidate", "arch", "outcome"]).to_pylist()
    rows = [row for row in rows if row["phase"] == "1-contrastive_rl"]
    by_arch = {arch: {row["candidate"] for row in rows if row["arch"] == arch} for arch in ("cpu", "A100", "L40S")}
    assert by_arch["cpu"] == by_arch["A100"] != set()
    right = {row["candidate"] for row in rows if row["arch"] == "cpu" and row["outcome"] == "ok"}
    assert by_arch["L40S"] <= right


def test_a_reward_is_the_worst_of_those_on_the_architectures_that_count(several: Finished) -> None:
    run = several.run
    verdicts = {
        (row["candidate"], row["arch"]): dict(row["speedups"])["eager"]["value"] if row["outcome"] == "ok" else 0.0
        for row in run.verdicts.read(columns=["candidate", "arch", "outcome", "speedups"]).to_pylist()
        if row["phase"] == "1-contrastive_rl"
    }
    samples = run.samples.read(columns=["candidate_digest", "reward", "copy_of"]).to_pylist()
    compared = Counter[bool]()
    for row in samples:
        digest = row["candidate_digest"]
        if row["phase"] == "1-contrastive_rl" and digest and row["reward"] is not None:
            worst = min(verdicts[digest, "cpu"], verdicts[digest, "A100"])
            assert row["reward"] == pytest.approx(worst, abs=0.11)  # `right_reward` may come on top
            compared[worst > 0] += 1
    assert sum(compared.values()) > 0


def test_the_best_programs_are_compared_on_all_architectures(several: Finished) -> None:
    run = several.run
    best = {kernel.task_id for kernel in run.kernels.read() if kernel.arch == "cpu"}
    table = portability_table(build_report(run))
    assert best
    assert table is not None
    assert [(name, cells[0].value) for name, cells in table.rows] == [
        (arch, str(len(best))) for arch in ("cpu", "A100", "L40S")
    ]
    assert "Portability" in several.output


def test_metrics_carry_the_architecture(several: Finished) -> None:
    names = {row["name"] for row in several.run.metrics.read().to_pylist()}
    assert {"arch/A100/judged", "arch/A100/success_rate", "utilisation/evaluators_A100"} <= names
