"""Who may use a GPU that roles share, and in which order memory passes from hand to hand.

The pools are recorders: what counts is the order of what they are told, and no real pool says that.
"""

import pytest

from orchestration.fleet.placement import ENGINE, EVALUATOR, LEARNER
from orchestration.fleet.turns import Turns


class Recorder:
    """Takes down what a pool is told."""

    def __init__(self, name: str, said: list[str]) -> None:
        self._name, self._said = name, said
        self.members = self

    def pause(self) -> None:
        self._said.append(f"{self._name} pause")

    def resume(self) -> None:
        self._said.append(f"{self._name} go on")

    def postpone_starts(self, postponed: bool) -> None:
        self._said.append(f"{self._name} start {'later' if postponed else 'again'}")

    def broadcast(self, method: str, *, timeout: float) -> list[None]:
        assert timeout > 0
        self._said.append(f"{self._name} {method}")
        return []


def turns_of(said: list[str], on_learner_rest=lambda: None, **options) -> Turns:
    pools = (Recorder(name, said) for name in ("engines", "evaluators", "builders"))
    return Turns(*pools, on_learner_rest=on_learner_rest, **options)  # type: ignore[arg-type]


def test_roles_with_gpus_of_their_own_are_left_alone() -> None:
    said: list[str] = []
    turns = turns_of(said, share="none", sleeps=True)
    for role in (LEARNER, ENGINE, EVALUATOR, ENGINE):
        turns.give_to(role)
    assert said == []


def test_engines_sleep_while_the_learner_has_their_gpu_and_evaluators_go_on() -> None:
    said: list[str] = []
    turns = turns_of(said, lambda: said.append("learner rests"), share="training", sleeps=True)
    turns.give_to(LEARNER)
    assert said == ["engines start later", "engines sleep"]
    said.clear()
    turns.give_to(ENGINE)
    assert said == ["learner rests", "engines wake_up", "engines start again"]


def test_evaluators_that_share_have_their_turn_to_themselves() -> None:
    said: list[str] = []
    turns = turns_of(said, share="all", sleeps=False)
    assert said == ["evaluators pause"]
    said.clear()
    turns.give_to(EVALUATOR)
    assert said == ["engines pause", "evaluators go on", "builders pause", "engines start later"]
    said.clear()
    turns.give_to(LEARNER)
    assert said == ["engines pause", "evaluators pause", "builders go on", "engines start later"]
    said.clear()
    turns.give_to(LEARNER)
    assert said == []
    turns.give_to(ENGINE)
    assert said == ["engines go on", "evaluators pause", "builders go on", "engines start again"]


def test_a_learner_that_is_lost_leaves_the_turn_where_it_is() -> None:
    """The next learner rests before the engines, which still sleep, wake up."""
    said: list[str] = []
    lost = [True]

    def rest() -> None:
        if lost.pop():
            raise RuntimeError("learner rank 0 died")
        said.append("learner rests")

    turns = turns_of(said, rest, share="all", sleeps=True)
    turns.give_to(LEARNER)
    said.clear()
    with pytest.raises(RuntimeError, match="died"):
        turns.give_to(ENGINE)
    assert (turns.holder, said) == (LEARNER, [])
    lost.append(False)
    turns.give_to(ENGINE)
    assert said[:2] == ["learner rests", "engines wake_up"]
