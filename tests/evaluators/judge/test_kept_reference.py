"""The reference's process may serve several judgements, and forgets each of them; a candidate's serves one."""

from __future__ import annotations

import pytest

from evaluators.evaluator import Evaluator
from evaluators.failures import RunnerFailure
from evaluators.host.runner_handle import RunnerHandle
from evaluators.records import Outcome
from tests.evaluators.judge.ahead import FAILS, HONEST, WRONG, is_there, judged, settle
from tests.evaluators.sources import DOUBLE, TWICE, model, reference_of


@pytest.fixture
def keeping(ahead: Evaluator) -> Evaluator:
    """An evaluator whose reference's process serves several judgements."""
    ahead.device.keeps_reference = True
    return ahead


def by_side(evaluator: Evaluator) -> tuple[int, int]:
    """The processes that wait for the next judgement: the reference's and the candidate's."""
    reference, candidate = evaluator._slot._processes._ahead
    return reference.process.pid, candidate.process.pid


def test_the_reference_process_serves_the_next_judgement_and_the_candidates_does_not(keeping, forks) -> None:
    """Of another task, too, after right programs and wrong ones."""
    assert judged(keeping) is Outcome.OK
    settle(keeping)
    reference, candidate = by_side(keeping)
    assert [process for _, process in forks] == [reference, forks[1][1], candidate]
    for task, source, outcome in (
        (TWICE, HONEST, Outcome.OK),
        (DOUBLE, reference_of(DOUBLE), Outcome.OK),
        (DOUBLE, model("return 3 * x[0]", name="ModelNew"), Outcome.WRONG),
        (TWICE, WRONG, Outcome.WRONG),
        (TWICE, HONEST, Outcome.OK),
    ):
        before = candidate
        verdict = keeping.evaluate(task, source, again=True)
        assert verdict.outcome is outcome, verdict.message
        settle(keeping)
        kept, candidate = by_side(keeping)
        assert kept == reference
        assert candidate != before
        assert not is_there(before)
    assert len(forks) == 2 + 6


def test_a_failing_program_takes_the_reference_process_with_it(keeping, forks) -> None:
    assert judged(keeping) is Outcome.OK
    settle(keeping)
    reference, _ = by_side(keeping)
    assert judged(keeping, FAILS) is Outcome.RUNTIME_ERROR
    settle(keeping)
    assert not is_there(reference)
    assert judged(keeping) is Outcome.OK


def test_a_program_that_fails_at_a_look_costs_no_process_of_the_next_judgement(keeping, forks, monkeypatch) -> None:
    assert judged(keeping) is Outcome.OK
    settle(keeping)
    waiting = by_side(keeping)
    monkeypatch.setattr(keeping.device, "looks_first", True)
    looked = keeping.evaluate(TWICE, FAILS, again=True)
    assert (looked.outcome, "look" in looked.cost) == (Outcome.RUNTIME_ERROR, True)
    assert by_side(keeping) == waiting
    assert all(is_there(process) for process in waiting)
    assert judged(keeping) is Outcome.OK


def test_a_reference_process_serves_so_often_and_no_more(keeping, forks, monkeypatch) -> None:
    monkeypatch.setattr("evaluators.judge.fresh_processes._MOST_USES", 2)
    served = []
    for _ in range(4):
        assert judged(keeping) is Outcome.OK
        settle(keeping)
        served.append(by_side(keeping)[0])
    assert served[0] == served[1] != served[2] == served[3]


def test_a_reference_process_that_cannot_forget_is_replaced(keeping, forks, monkeypatch) -> None:
    assert judged(keeping) is Outcome.OK
    settle(keeping)
    reference, _ = by_side(keeping)

    def refuse(self: RunnerHandle, timeout: float) -> None:
        raise RunnerFailure(Outcome.RUNTIME_ERROR, "it does not forget")

    monkeypatch.setattr(RunnerHandle, "reset", refuse)
    assert judged(keeping) is Outcome.OK
    settle(keeping)
    assert keeping._slot._processes._ahead == []
    assert not is_there(reference)
    assert judged(keeping) is Outcome.OK


def test_outputs_without_room_in_a_kept_gate_get_another_process(keeping, forks, monkeypatch) -> None:
    assert judged(keeping) is Outcome.OK
    settle(keeping)
    reference, _ = by_side(keeping)
    full = {reference}
    monkeypatch.setattr(RunnerHandle, "has_room", lambda self, specs: self.process.pid not in full)
    assert judged(keeping) is Outcome.OK
    settle(keeping)
    assert not is_there(reference)
