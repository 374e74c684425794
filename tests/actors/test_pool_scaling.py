"""A pool grows from nothing with its queue, and shrinks to nothing when nobody needs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from actors.pool import ActorPool
from actors.pool_records import PoolExhausted, PoolFailure
from tests.actors.test_pool import worker_class

IDLE = 1.5


@pytest.fixture
def make_pool(local_ray: None) -> Iterator[Callable[..., ActorPool]]:
    pools: list[ActorPool] = []
    worker = worker_class()

    def make(size: int = 3, broken: bool = False, **options: Any) -> ActorPool:
        keywords = {"timeout": 60.0, "start_timeout": 60.0, "idle_seconds": IDLE, **options}
        pools.append(ActorPool("evaluator", lambda index: worker.remote(index, broken), size, **keywords))
        return pools[-1]

    yield make
    for pool in pools:
        pool.stop()


def results_of(pool: ActorPool) -> list[Any]:
    results = []
    while pool.pending:
        results += [result for _, result in pool.poll()]
    return results


def wait_until(pool: ActorPool, what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, pool.describe()
        pool.poll(0.1)


def test_no_actor_starts_before_there_is_an_item(make_pool: Callable[..., ActorPool]) -> None:
    pool = make_pool()
    pool.wait_ready(10)
    assert len(pool.members) == 0
    assert not pool.members.is_exhausted
    assert pool.poll(0.1) == []


def test_a_pool_starts_as_many_actors_as_there_are_items_and_no_more_than_its_size(
    make_pool: Callable[..., ActorPool],
) -> None:
    pool = make_pool()
    pool.submit(("sleep", 0.1), "work")
    assert results_of(pool) == [(0, 0)]
    assert len(pool.members) == 1
    for _ in range(400):
        pool.submit(("sleep", 0.3), "work")
    wait_until(pool, lambda: pool.members.ready == 3)
    assert pool.members.started == 3


@pytest.mark.slow
def test_actors_without_an_item_end_and_start_again_with_the_queue(make_pool: Callable[..., ActorPool]) -> None:
    pool = make_pool()
    for _ in range(6):
        pool.submit(("sleep", 0.3), "work")
    results_of(pool)
    started = time.monotonic()
    wait_until(pool, lambda: len(pool.members) == 0)
    assert time.monotonic() - started > IDLE / 2
    assert not pool.members.is_exhausted
    pool.submit(("sleep", 0.0), "work")
    assert results_of(pool) == [(0, 0)]
    assert pool.members.restarts == 0


def test_an_actor_that_works_does_not_end(make_pool: Callable[..., ActorPool]) -> None:
    pool = make_pool(size=2)
    pool.submit(("sleep", 3 * IDLE), "work")
    pool.submit(("sleep", 0.0), "work")
    assert len(results_of(pool)) == 2
    assert pool.members.restarts == 0


@pytest.mark.slow
def test_an_item_fails_if_no_actor_can_be_started_for_it(make_pool: Callable[..., ActorPool]) -> None:
    pool = make_pool(broken=True, max_failed_starts=1)
    pool.submit(("sleep", 0.0), "work")
    (failure,) = results_of(pool)
    assert isinstance(failure, PoolFailure)
    assert isinstance(failure.error, PoolExhausted)
    assert "no such model" in str(failure.error)


def test_actors_that_wait_for_what_is_not_wanted_any_more_end(make_pool: Callable[..., ActorPool]) -> None:
    pool = make_pool()
    pool.submit(("sleep", 0.0), "work")
    pool.poll(0.0)
    assert pool.members.started == 1
    pool.withdraw(lambda _: True)
    wait_until(pool, lambda: pool.members.started == 0)


@pytest.mark.slow
def test_a_place_whose_actors_fail_is_tried_again_as_long_as_others_start(local_ray: None) -> None:
    worker, starts = worker_class(), list[int]()

    def start(index: int) -> Any:
        starts.append(index)
        return worker.remote(index, index == 0 and starts.count(0) < 3)

    pool = ActorPool("evaluator", start, 2, timeout=60.0, max_failed_starts=2, idle_seconds=600.0)
    for _ in range(400):
        pool.submit(("sleep", 0.3), "work")
    wait_until(pool, lambda: pool.members.ready == 2)
    pool.stop()
