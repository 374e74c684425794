"""A place whose actors die soon after they start waits longer and longer before the next, on a clock that is told."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from actors import pool_members
from actors.pool import ActorPool
from actors.pool_records import PoolFailure
from actors.pool_restarts import MOST_SECONDS, STEADY_SECONDS, pause_before_start
from tests.actors.workers import Clock, Worker, process_of


@pytest.fixture
def make_pool(local_ray: None, monkeypatch: pytest.MonkeyPatch) -> Iterator:
    monkeypatch.setattr(pool_members, "pause_before_start", lambda losses: pause_before_start(losses, lambda: 1.0))
    pools = []

    def make(size: int, factory: Any = lambda _: Worker.remote(), **options: Any) -> ActorPool:
        pools.append(ActorPool("test", factory, size, timeout=30.0, probe_timeout=1.0, **options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.stop()


def kill(pool: ActorPool) -> None:
    """Kills the actor of a pool of one, and returns once the pool knows."""
    ((actor, _),) = pool.members.items()
    before = pool.members.restarts
    os.kill(process_of(pool), signal.SIGKILL)
    pool.members.probe(actor)
    deadline = time.monotonic() + 30
    while pool.members.restarts == before:
        assert time.monotonic() < deadline
        pool.members.check(pool._clock())
        time.sleep(0.01)


def test_pauses_double_up_to_a_minute_and_differ_between_places() -> None:
    assert [pause_before_start(losses, lambda: 1.0) for losses in range(9)] == [0, 0, 1, 2, 4, 8, 16, 32, 60]
    assert pause_before_start(10_000) <= MOST_SECONDS
    assert pause_before_start(9, lambda: 0.0) == MOST_SECONDS / 2
    assert len({pause_before_start(9) for _ in range(9)}) > 1


@pytest.mark.slow
def test_a_place_whose_actors_die_soon_waits_and_one_whose_actor_lasted_does_not(make_pool) -> None:
    clock = Clock()
    pool = make_pool(1, clock=clock)
    pool.wait_ready(60)
    kill(pool)
    assert len(pool.members) == 1, "the next starts at once"
    for pause in (1.0, 2.0):
        pool.wait_ready(60)
        kill(pool)
        assert len(pool.members) == 0
        assert f"actor 0 starts in {pause:.0f} s, after" in pool.members.describe()
        pool.submit("item", "work")
        pool.poll(0.0)
        assert len(pool.members) == 0
        clock.now += pause
        assert pool.poll(30.0) == [("item", "item")]
    clock.now += STEADY_SECONDS
    kill(pool)
    assert len(pool.members) == 1, "it had lasted"


@pytest.mark.slow
def test_a_pool_is_waited_for_while_a_place_waits_before_its_next_start(make_pool) -> None:
    started = []

    def make(index: int) -> Any:
        started.append(index)
        return Worker.remote(broken=len(started) < 3)

    pool = make_pool(1, make)
    pool.wait_ready(60)
    assert (len(started), len(pool.members.healthy())) == (3, 1)


def test_a_place_that_was_given_up_leaves_the_work_to_the_others(make_pool) -> None:
    pool = make_pool(2, lambda index: Worker.remote(broken=index == 1), max_failed_starts=2)
    pool.wait_ready(60)
    assert (pool.members.places(), len(pool.members)) == ({0}, 1)
    for item in "abc":
        pool.submit(item, "work")
    results: list[Any] = []
    while pool.pending:
        results += pool.poll()
    assert sorted(results) == [(item, item) for item in "abc"]
    assert not any(isinstance(result, PoolFailure) for _, result in results)


@pytest.mark.slow
def test_an_idle_actor_that_died_is_replaced_before_it_gets_work(make_pool) -> None:
    clock = Clock()
    pool = make_pool(1, clock=clock)
    pool.wait_ready(60)
    os.kill(process_of(pool), signal.SIGKILL)
    deadline = time.monotonic() + 30
    while pool.members.restarts == 0:
        assert time.monotonic() < deadline
        clock.now += 10.0  # until it is asked again whether it lives
        pool.poll(0.0)
        time.sleep(0.05)
    pool.wait_ready(60)
