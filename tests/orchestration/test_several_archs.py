"""A whole run on a Ray cluster with two pretended types of GPUs, beside the CPU that it trains for."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orchestration.report import build_report
from orchestration.report.tables import portability_table
from orchestration.run.directory import RunDirectory
from tests.orchestration.processes import HANG_SECONDS, pids_of, start

SEVERAL = [
    "evaluation.archs={A100: {share: 1.0}, L40S: {share: 0.5, idle_minutes: 5}}",
    "evaluation.reward=worst",
    "schedule.phases=[sft,contrastive_rl]",
    "contrastive_rl.steps=1",
    "contrastive_rl.max_staleness=0",
    "assessment.constant_policies=false",
    "tasks.held_out.tasks=[]",
    "tracking.enabled=false",
]


class Finished(NamedTuple):
    """A run, and what it printed."""

    run: RunDirectory
    output: str


def run_to_its_end(root: Path) -> Finished:
    with tempfile.TemporaryDirectory(prefix="ws-", dir="/tmp") as folder:  # a socket's path may have 107 bytes
        (Path(folder) / "ray").mkdir()
        before = os.environ.get("RAY_TMPDIR")
        os.environ["RAY_TMPDIR"] = folder
        try:
            process = start(root, *SEVERAL, program=("-m", "tests.orchestration.several_archs"))
        finally:
            os.environ.pop("RAY_TMPDIR")
            if before is not None:
                os.environ["RAY_TMPDIR"] = before
        try:
            output, _ = process.communicate(timeout=HANG_SECONDS)
        finally:
            for left in pids_of(root):  # the cluster that it started, if it was stopped
                with suppress(ProcessLookupError):
                    os.kill(left, signal.SIGKILL)
    assert process.returncode == 0, output
    return Finished(RunDirectory(str(root), "small"), output)


IN_BACKGROUND = {"several": run_to_its_end}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def several(in_background: Callable[[str], Any]) -> Finished:
    found: Finished = in_background("several")
    return found


def test_the_best_programs_are_judged_and_compared_on_all_architectures(several: Finished) -> None:
    run = several.run
    best = {kernel.candidate.digest for kernel in run.kernels.read() if kernel.arch == "cpu"}
    rows = run.verdicts.read(columns=["candidate", "arch", "outcome"]).to_pylist()
    assert best
    for arch in ("A100", "L40S"):
        assert {row["candidate"] for row in rows if row["arch"] == arch} >= best
    table = portability_table(build_report(run))
    assert table is not None
    assert [name for name, _ in table.rows] == ["cpu", "A100", "L40S"]
    assert [cells[0].value for _, cells in table.rows] == [str(len(best))] * 3
    assert "Portability" in several.output


def test_the_best_program_of_each_architecture_is_kept_with_a_verdict_of_its_own(several: Finished) -> None:
    kernels = several.run.kernels.read()
    assert {kernel.arch for kernel in kernels} == {"cpu", "A100", "L40S"}
    assert all(kernel.verdict.arch == kernel.arch for kernel in kernels)


def test_metrics_tell_the_architectures_apart(several: Finished) -> None:
    names = {row["name"] for row in several.run.metrics.read().to_pylist()}
    assert {"utilisation/evaluators", "utilisation/evaluators_A100", "utilisation/evaluators_L40S"} <= names
