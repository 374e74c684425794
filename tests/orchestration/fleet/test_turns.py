"""Which role may use a shared GPU, and in which order roles free and take its memory.

Where only the order of calls counts, the pools are stand-ins that record them: no real pool shows it.
"""

from collections.abc import Iterator

import pytest

from actors.pool import ActorPool, wait_any
from orchestration.fleet.placement import ENGINE, EVALUATOR, LEARNER
from orchestration.fleet.turns import ENOUGH, Turns
from tests.actors.workers import Worker


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


@pytest.fixture
def real_pools(local_ray: None) -> Iterator[list[ActorPool]]:
    pools = [ActorPool(name, lambda _: Worker.remote(), 2) for name in ("engines", "evaluators", "builders")]
    for pool in pools:
        pool.wait_ready(60)
    yield pools
    for pool in pools:
        pool.stop()


def judge_all(turns: Turns, pools: list[ActorPool], programs: int) -> list[int]:
    """Puts all programs through builders and evaluators; returns how many were with builders at each verdict."""
    _, evaluators, builders = pools
    for number in range(programs):
        builders.submit(number, "work")
    left = []
    while len(left) < programs:
        turns.pass_on(has_prompts=False)
        for number, _ in builders.poll(0.0):
            evaluators.submit(number, "work")
        left += [builders.pending for _ in evaluators.poll(0.0)]
        assert not (evaluators.load.is_busy and builders.load.is_busy)
        wait_any(pools, 0.01)
    return left


def test_evaluators_do_not_wait_for_more_looks_than_a_step_has(real_pools: list[ActorPool]) -> None:
    """As long as they did, a window of a run on many tasks ended without one verdict on a teacher's program."""
    turns = Turns(*real_pools, share="all", sleeps=False)
    left = judge_all(turns, real_pools, 5 * ENOUGH)
    assert left[0] >= 3 * ENOUGH, "the first verdicts come while most programs wait for a builder"
    assert left[-1] == 0
    assert sorted(left, reverse=True) == left
    assert len(set(left)) <= 6, "turns pass in batches"


def test_the_programs_of_a_step_are_measured_after_all_were_looked_at(real_pools: list[ActorPool]) -> None:
    turns = Turns(*real_pools, share="all", sleeps=False)
    assert set(judge_all(turns, real_pools, ENOUGH)) == {0}


def test_evaluators_wait_as_long_as_anything_is_generated(real_pools: list[ActorPool]) -> None:
    turns = Turns(*real_pools, share="all", sleeps=False)
    _, evaluators, builders = real_pools
    for number in range(2 * ENOUGH):
        builders.submit(number, "work")
    while builders.pending:
        turns.pass_on(has_prompts=True)
        for number, _ in builders.poll(0.0):
            evaluators.submit(number, "work")
        wait_any(real_pools, 0.01)
    assert turns.holder == ENGINE
    assert evaluators.pending == 2 * ENOUGH
    turns.pass_on(has_prompts=False)
    assert turns.holder == EVALUATOR
