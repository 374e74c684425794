"""The speed-ups of the reference's copies are read from a published run's rows."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.copies import by_phase, copies, lessons, summary
from configs.schema import RunConfig
from evaluators.records import Candidate, Estimate, Outcome, Verdict
from learners.records import Rollout
from orchestration.report import build_report
from orchestration.report.publish import publish
from orchestration.run.directory import RunDirectory

SPEEDS = {0.98: (0.97, 0.99), 1.0: (0.99, 1.01), 1.02: (0.99, 1.04), 3.0: (2.9, 3.1)}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A run of four right programs and a wrong one; all but the fastest are copies of the reference."""
    run = RunDirectory(tmp_path, "small")
    run.write_config(RunConfig(name="small", root=str(tmp_path)))
    rollouts, verdicts = [], []
    for speed, (low, high) in {**SPEEDS, 0.0: (0.0, 0.0)}.items():
        candidate = Candidate.propose("level1/softmax", f"speed = {speed}", "policy:1")
        outcome = Outcome.OK if speed else Outcome.WRONG
        over = {"eager": Estimate(speed, low, high, 5)} if speed else {}
        verdicts.append(Verdict(candidate.digest, "level1/softmax", "cpu", outcome, speedups=over))
        rollouts.append(
            Rollout(
                "level1/softmax", "g", "", "", (1,), (2,), (-1.0,), 1, candidate_digest=candidate.digest,
                outcome=str(outcome), copy_of="reference" if speed != 3.0 else "exemplar",
            )
        )  # fmt: skip
    run.samples.write("assess/base", 0, rollouts)
    run.verdicts.write("assess/base", 0, verdicts)
    return publish(build_report(run), run, tmp_path / "page").parent


def test_only_right_copies_are_counted(published: Path) -> None:
    speedups = list(copies(published).values())
    assert sorted(speedup.value for speedup in speedups) == [0.98, 1.0, 1.02]
    sentence = summary(speedups)
    assert "3 programs" in sentence
    assert "median 1.0000x" in sentence
    assert "all between 0.980x and 1.020x; 2 of the 3 intervals hold 1 (67%)" in sentence


def test_a_phase_has_a_row_with_the_kinds_of_its_right_programs(published: Path) -> None:
    console = Console(file=io.StringIO(), width=140)
    console.print(by_phase(published))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines()[-2].split() == ["assess/base", "5", "4", "3", "1", "0", "5"]
    assert lessons(published).startswith("0 verified programs")
