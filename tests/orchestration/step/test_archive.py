"""What a step brought is stored beside learning, and is there, or its failure known, before the step is committed."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs.schema import BufferConfig, RunConfig
from evaluators.guard.cases import HackCases
from evaluators.records import Candidate, Estimate, Outcome, Verdict
from orchestration.run.directory import RunDirectory
from orchestration.step import archive as archive_module
from orchestration.step.archive import Archive
from orchestration.step.known import RunVerdicts
from orchestration.step.records import StepResult
from prompts.buffer import ExemplarBuffer


def archive_of(references: dict[str, str]) -> tuple[Archive, ExemplarBuffer]:
    """An archive with an empty buffer, whose run directory is never written."""
    buffer = ExemplarBuffer(BufferConfig(), "cpu", 0)
    prompts: Any = SimpleNamespace(buffer=buffer, references=references)
    unused: Any = None
    return Archive(RunConfig(name="run"), unused, unused, prompts, RunVerdicts()), buffer


def test_storing_goes_on_beside_the_block_and_has_ended_behind_it() -> None:
    archive, _ = archive_of({})
    begun, learnt, stored = threading.Event(), threading.Event(), threading.Event()

    def store(key: str, step: int, result: StepResult) -> None:
        begun.set()
        assert learnt.wait(10), "both wait for each other unless they run side by side"
        stored.set()

    archive._write = store  # type: ignore[method-assign]
    with archive.storing("1-sft", 0, StepResult()):
        assert begun.wait(10)
        learnt.set()
    assert stored.is_set()


def test_rows_that_are_never_stored_end_the_run_instead_of_keeping_it(tmp_path: Path) -> None:
    archive, _ = archive_of({})
    archive._run, archive._limit = RunDirectory(tmp_path, "run"), 0.1
    answers = threading.Event()
    archive._write = lambda *_: answers.wait(60)  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(TimeoutError, match=r"run: the rows of 1-sft, step 3, were not stored within 0\.1 s"):
        archive.store("1-sft", 3, StepResult())
    with pytest.raises(TimeoutError, match="were not stored"), archive.storing("1-sft", 3, StepResult()):
        raise ValueError("the learner failed, and the step would be done again")
    answers.set()
    with pytest.raises(ValueError, match="the learner failed"), archive.storing("1-sft", 3, StepResult()):
        raise ValueError("the learner failed")


def test_an_interrupted_step_is_stored_but_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory(tmp_path, "run")
    archive = Archive(
        RunConfig(name="run"), run, HackCases(tmp_path / "cases.jsonl"), archive_of({})[0]._prompts, RunVerdicts()
    )
    candidate = Candidate.propose("level1/a", "class ModelNew: pass", "teacher")
    verdict = Verdict(candidate.digest, "level1/a", "cpu", Outcome.WRONG, "other values")
    result = StepResult(candidates={candidate.digest: candidate})
    result.verdicts[candidate.digest] = verdict
    archive.store_interrupted("1-sft", 0, result)
    for rows, column in ((run.verdicts, "candidate"), (run.candidates, "digest")):
        assert rows.read(columns=[column]).column(column).to_pylist() == [candidate.digest]

    monkeypatch.setattr(archive_module, "_INTERRUPTED_SECONDS", 0.1)
    stands_still = threading.Event()
    archive._write = lambda *_: stands_still.wait(60)  # type: ignore[method-assign, assignment, return-value]
    archive.store_interrupted("1-sft", 0, result)
    assert not stands_still.is_set()
    stands_still.set()


def test_copies_of_the_reference_do_not_enter_the_buffer() -> None:
    reference = "class Model:\n    def forward(self, x):\n        return x + x\n"
    archive, buffer = archive_of({"level1/a": reference})
    result = StepResult()
    copy = reference.replace("Model", "ModelNew")
    for source in (copy, copy.replace("x + x", "2 * x")):
        candidate = Candidate.propose("level1/a", source, "policy:1")
        result.candidates[candidate.digest] = candidate
        speedups = {"eager": Estimate(1.0, 1.0, 1.0, 3)}
        result.verdicts[candidate.digest] = Verdict(candidate.digest, "level1/a", "cpu", Outcome.OK, speedups=speedups)
    archive.remember(result, 1)
    (kept,) = buffer.candidates("level1/a")
    assert "2 * x" in kept.candidate.source


def test_a_step_says_of_how_many_tasks_a_program_is_faster_than_all_before_it() -> None:
    archive, _ = archive_of({f"level1/{name}": "class Model: pass" for name in "abc"})

    def after(**speeds: float) -> float:
        result = StepResult()
        for name, speed in speeds.items():
            candidate = Candidate.propose(f"level1/{name}", f"speed = {speed}", "policy:1")
            over = {"eager": Estimate(speed, speed, speed, 3)}
            result.candidates[candidate.digest] = candidate
            result.verdicts[candidate.digest] = Verdict(
                candidate.digest, f"level1/{name}", "cpu", Outcome.OK, speedups=over
            )
        archive.remember(result, 1)
        return result.metrics["improved_tasks"]

    assert after(a=0.5, b=1.005, c=1.3) == 1.0, "not those that are as slow as the reference"
    assert after(a=0.9, b=1.2, c=1.305) == 1.0, "1.305x is 1.3x within noise"
    assert after(a=1.1, b=1.3, c=2.0) == 3.0
    assert after(a=1.0) == 0.0


def test_what_cannot_be_stored_ends_the_step() -> None:
    archive, _ = archive_of({})

    def store(key: str, step: int, result: StepResult) -> None:
        raise OSError("no space left on device")

    archive._write = store  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no space"), archive.storing("1-sft", 0, StepResult()):
        pass
