"""A verdict is reviewed if its reward jumps or its evidence is suspect, and otherwise it is not."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from configs.schema import GuardConfig
from evaluators.gauntlet import discover
from evaluators.guard.cases import HackCases, Status, case_of
from evaluators.guard.ruling import Decision, Opinion
from evaluators.records import Candidate, Estimate, Finding, Outcome, Verdict
from evaluators.tasks import find_task, program_source
from orchestration.step.checker import Question
from orchestration.step.review import Reviewer

SOFTMAX = find_task("level1/softmax", "cpu")
LAZY = Candidate.propose(
    SOFTMAX.id,
    next(program.source for program in discover("cpu") if program.id == "exploits/lazy/torch_function")
    + "\nkept = 1\n",
    "policy:1",
)
PLAIN = Candidate.propose(
    SOFTMAX.id,
    "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.softmax(1)\n",
    "policy:1",
)


class Asking:
    """A reward checker that the test answers for."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.answers: list[Future[Opinion | None]] = []

    def __call__(self, question: Question) -> Future[Opinion | None]:
        self.questions.append(question)
        self.answers.append(Future())
        return self.answers[-1]

    def take(self, key: str, outcome: object) -> bool:
        return False


@pytest.fixture
def reviewer(tmp_path: Path) -> Reviewer:
    return Reviewer(GuardConfig(), HackCases(tmp_path / "hacks.parquet"), {SOFTMAX.id: program_source(SOFTMAX)})


def verdict(candidate: Candidate, speedup: float, *findings: Finding) -> Verdict:
    measured = {"eager": Estimate(speedup, speedup, speedup, 9)}
    made = Verdict(candidate.digest, SOFTMAX.id, "cpu", Outcome.OK, speedups=measured, guard=findings)
    if findings:
        made = replace(made, outcome=Outcome(findings[0].severity), speedups={}, doubted=measured)
    return made


def ruled(reviewer: Reviewer, candidate: Candidate, given: Verdict) -> Verdict:
    reviewer.submit(candidate, given)
    ((_, reviewed),) = reviewer.poll()
    return reviewed


LATE = Finding("clocks", "suspect", "late")


def test_without_a_jump_or_evidence_a_verdict_is_left_alone(reviewer: Reviewer) -> None:
    for speedup in (0.5, 0.9, 1.7, 2.9):
        given = verdict(LAZY, speedup)
        assert ruled(reviewer, LAZY, given) is given
    assert reviewer.best_of(SOFTMAX.id) == 2.9


def test_a_jump_is_compared_with_known_hacks(reviewer: Reviewer) -> None:
    assert ruled(reviewer, LAZY, verdict(LAZY, 3.5)).outcome is Outcome.SUSPECT
    assert ruled(reviewer, PLAIN, verdict(PLAIN, 3.5)).outcome is Outcome.OK
    assert reviewer.best_of(SOFTMAX.id) == 3.5


def test_twice_the_best_so_far_is_a_jump(reviewer: Reviewer) -> None:
    assert ruled(reviewer, PLAIN, verdict(PLAIN, 0.6)).outcome is Outcome.OK
    assert ruled(reviewer, LAZY, verdict(LAZY, 1.9)).outcome is Outcome.OK, "the reference itself reaches 1"
    assert ruled(reviewer, PLAIN, verdict(PLAIN, 1.2)).outcome is Outcome.OK
    reviewer.believe(verdict(LAZY, 1.0, LATE))
    assert reviewer.best_of(SOFTMAX.id) == 1.2
    assert ruled(reviewer, LAZY, verdict(LAZY, 2.5)).outcome is Outcome.SUSPECT


def test_a_suspect_is_a_hack_if_it_is_like_one(reviewer: Reviewer) -> None:
    assert ruled(reviewer, LAZY, verdict(LAZY, 1.0, LATE)).outcome is Outcome.HACK
    assert ruled(reviewer, PLAIN, verdict(PLAIN, 1.0, LATE)).outcome is Outcome.SUSPECT
    assert reviewer.best_of(SOFTMAX.id) is None


def test_only_the_verdict_itself_waits_for_a_checker(reviewer: Reviewer) -> None:
    asking = reviewer.ask = Asking()
    reviewer.submit(LAZY, verdict(LAZY, 1.0, LATE))
    reviewer.submit(PLAIN, verdict(PLAIN, 1.0))
    assert [candidate for candidate, _ in reviewer.poll()] == [PLAIN]
    assert reviewer.poll() == []
    asking.answers[0].set_result(Opinion(Decision.DOUBT, "", "unclear", "it"))
    ((_, reviewed),) = reviewer.poll()
    assert reviewed.outcome is Outcome.SUSPECT
    assert reviewed.guard[-1] == Finding("checker", "suspect", "it speaks: doubt, unclear")
    assert reviewer.poll() == []


def test_without_a_checkers_answer_the_known_hacks_decide(reviewer: Reviewer) -> None:
    asking = reviewer.ask = Asking()
    reviewer.submit(LAZY, verdict(LAZY, 1.0, LATE))
    asking.answers[0].set_result(None)
    assert reviewer.poll()[0][1].outcome is Outcome.HACK


def test_a_verdict_that_a_person_decided_on_is_not_reviewed(reviewer: Reviewer) -> None:
    asking = reviewer.ask = Asking()
    given = verdict(PLAIN, 9.0, LATE)
    reviewer.cases.add([case_of(PLAIN, given, "run")])
    reviewer.cases.judge(PLAIN.digest, Status.REJECTED)
    assert ruled(reviewer, PLAIN, given).speedup == 9.0
    assert ruled(reviewer, PLAIN, verdict(PLAIN, 9.0)).speedup == 9.0
    assert not asking.questions


def test_a_cleared_program_counts_as_honest(reviewer: Reviewer) -> None:
    given = verdict(PLAIN, 2.0, LATE)
    reviewer.cases.add([case_of(PLAIN, given, "run")])
    assert reviewer.review_again(given).deciding
    reviewer.cases.judge(PLAIN.digest, Status.REJECTED)
    cleared = reviewer.review_again(given)
    assert (cleared.outcome, cleared.speedup, cleared.deciding) == (Outcome.OK, 2.0, ())
    assert reviewer.best_of(SOFTMAX.id) == 2.0
    reviewer.cases.judge(PLAIN.digest, Status.CONFIRMED)
    assert reviewer.review_again(cleared).outcome is Outcome.HACK
    assert reviewer.best_of(SOFTMAX.id) is None


def test_a_copy_of_a_known_exploit_is_a_hack_whatever_it_gains(reviewer: Reviewer) -> None:
    exploit = next(program for program in discover("cpu") if program.is_exploit and program.task == SOFTMAX.id)
    copy = Candidate.propose(SOFTMAX.id, exploit.source, "policy:1")
    assert ruled(reviewer, copy, verdict(copy, 1.1)).outcome is Outcome.HACK


def test_a_program_that_cannot_be_shown_whole_is_doubted_if_there_is_a_checker(reviewer: Reviewer) -> None:
    source = PLAIN.source.replace("import torch\n", f"import torch\nx = {'+'.join('0' * 900)}\n", 1)
    deep = Candidate.propose(SOFTMAX.id, source, "policy:1")
    assert ruled(reviewer, deep, verdict(deep, 9.0)).outcome is Outcome.OK
    asking = reviewer.ask = Asking()
    reviewed = ruled(reviewer, deep, verdict(deep, 20.0))
    assert reviewed.outcome is Outcome.SUSPECT
    assert "shown whole" in reviewed.guard[-1].message
    assert not asking.questions


def test_a_checker_that_breaks_loses_no_verdict(reviewer: Reviewer) -> None:
    class Broken(Asking):
        def __call__(self, question: Question) -> Future[Opinion | None]:
            raise UnicodeError("no such character")

    reviewer.ask = Broken()
    assert ruled(reviewer, LAZY, verdict(LAZY, 1.0, LATE)).outcome is Outcome.HACK
    asking = reviewer.ask = Asking()
    reviewer.submit(LAZY, verdict(LAZY, 1.0, LATE))
    asking.answers[0].set_exception(ValueError("broken"))
    assert reviewer.poll()[0][1].outcome is Outcome.HACK
    assert reviewer.poll() == []


def test_with_the_guard_off_every_verdict_stands(tmp_path: Path) -> None:
    off = Reviewer(GuardConfig(enabled=False), HackCases(tmp_path / "hacks.parquet"), {})
    given = verdict(LAZY, 50.0)
    assert ruled(off, LAZY, given) is given
