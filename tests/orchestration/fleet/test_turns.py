"""Which role may use a shared GPU, and in which order roles free and take its memory.

The pools are stand-ins that record their calls: only the order of the calls counts, and no real pool shows it.
"""

import pytest

from orchestration.fleet.placement import ENGINE, EVALUATOR, LEARNER
from orchestration.fleet.turns import Turns


class Recorder:
    """Records the calls to a pool."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self._name, self._calls = name, calls
        self.members = self

    def pause(self) -> None:
        self._calls.append(f"{self._name} pause")

    def resume(self) -> None:
        self._calls.append(f"{self._name} go on")

    def postpone_starts(self, postponed: bool) -> None:
        self._calls.append(f"{self._name} start {'later' if postponed else 'again'}")

    def broadcast(self, method: str, *, timeout: float) -> list[None]:
        assert timeout > 0
        self._calls.append(f"{self._name} {method}")
        return []


def turns_of(calls: list[str], on_learner_rest=lambda: None, **options) -> Turns:
    pools = (Recorder(name, calls) for name in ("engines", "evaluators", "builders"))
    return Turns(*pools, on_learner_rest=on_learner_rest, **options)  # type: ignore[arg-type]


def test_roles_with_gpus_of_their_own_are_left_alone() -> None:
    calls: list[str] = []
    turns = turns_of(calls, share="none", sleeps=True)
    for role in (LEARNER, ENGINE, EVALUATOR, ENGINE):
        turns.give_to(role)
    assert calls == []


def test_engines_sleep_while_the_learner_has_their_gpu_and_evaluators_go_on() -> None:
    calls: list[str] = []
    turns = turns_of(calls, lambda: calls.append("learner rests"), share="training", sleeps=True)
    turns.give_to(LEARNER)
    assert calls == ["engines start later", "engines sleep"]
    calls.clear()
    turns.give_to(ENGINE)
    assert calls == ["learner rests", "engines wake_up", "engines start again"]


def test_evaluators_on_a_shared_gpu_have_their_turn_to_themselves() -> None:
    calls: list[str] = []
    turns = turns_of(calls, share="all", sleeps=False)
    assert calls == ["evaluators pause"]
    calls.clear()
    turns.give_to(EVALUATOR)
    assert calls == ["engines pause", "evaluators go on", "builders pause", "engines start later"]
    calls.clear()
    turns.give_to(LEARNER)
    assert calls == ["engines pause", "evaluators pause", "builders go on", "engines start later"]
    calls.clear()
    turns.give_to(LEARNER)
    assert calls == []
    turns.give_to(ENGINE)
    assert calls == ["engines go on", "evaluators pause", "builders go on", "engines start again"]


def test_engines_are_woken_after_a_turn_that_was_not_passed_to_its_end() -> None:
    """Some of them sleep already: a push to them would fail."""
    calls: list[str] = []

    class Failing(Recorder):
        def broadcast(self, method: str, *, timeout: float) -> list[None]:
            super().broadcast(method, timeout=timeout)
            if method == "sleep":
                raise RuntimeError("learner rank 0 died")
            return []

    others = (Recorder(name, []) for name in ("evaluators", "builders"))
    turns = Turns(Failing("engines", calls), *others, share="training", sleeps=True)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="died"):
        turns.give_to(LEARNER)
    turns.give_to(ENGINE)
    assert calls == ["engines start later", "engines sleep", "engines wake_up", "engines start again"]


def test_a_learner_that_is_lost_leaves_the_turn_where_it_is() -> None:
    """The engines still sleep then. They wake up after the next learner has freed its memory."""
    calls: list[str] = []
    lost = [True]

    def rest() -> None:
        if lost.pop():
            raise RuntimeError("learner rank 0 died")
        calls.append("learner rests")

    turns = turns_of(calls, rest, share="all", sleeps=True)
    turns.give_to(LEARNER)
    calls.clear()
    with pytest.raises(RuntimeError, match="died"):
        turns.give_to(ENGINE)
    assert (turns.holder, calls) == (LEARNER, [])
    lost.append(False)
    turns.give_to(ENGINE)
    assert calls[:2] == ["learner rests", "engines wake_up"]
