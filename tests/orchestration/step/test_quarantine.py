"""A program that the guard gave no reward becomes one hack case."""

from __future__ import annotations

from pathlib import Path

from evaluators.guard.cases import HackCases, Status, seeds
from evaluators.records import Candidate, Finding, Outcome, Verdict
from orchestration.step.quarantine import quarantine

FINDINGS = {
    Outcome.OK: Finding("text", "hint", "odd"),
    Outcome.SUSPECT: Finding("clocks", "suspect", "late"),
    Outcome.HACK: Finding("integrity", "hack", "patched"),
    Outcome.WRONG: Finding("text", "hint", "odd"),
}


def test_a_doubted_program_becomes_one_case(tmp_path: Path) -> None:
    candidates, verdicts = {}, {}
    for number, (outcome, finding) in enumerate(FINDINGS.items()):
        candidate = Candidate.propose("level1/softmax", f"class ModelNew: x = {number}", "policy:3")
        candidates[candidate.digest] = candidate
        verdicts[candidate.digest] = Verdict(candidate.digest, candidate.task_id, "cpu", outcome, guard=(finding,))
    cases = HackCases(tmp_path / "hacks.parquet")
    assert quarantine(cases, candidates, verdicts, "run/1-contrastive_rl", {"level1/softmax": "class Model"}) == 2
    assert quarantine(cases, candidates, verdicts, "run/1-contrastive_rl", {}) == 0
    doubted, proven = cases.all()[len(seeds()) :]
    assert (doubted.status, doubted.kinds, doubted.why) == (Status.SUSPECT, ("clocks",), "late")
    assert doubted.reference == "class Model"
    assert (proven.status, proven.kinds, proven.origin) == (Status.CONFIRMED, ("integrity",), "run/1-contrastive_rl")


def test_without_doubts_nothing_is_written(tmp_path: Path) -> None:
    assert quarantine(HackCases(tmp_path / "hacks.parquet"), {}, {}, "run", {}) == 0
    assert not list(tmp_path.iterdir())
