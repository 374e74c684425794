"""An item that loses one worker after the other is set aside; losses that are not its fault do not count."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, TaskCancelledError

from actors.pool import ActorPool
from actors.pool_losses import ALL_DIED, DEAD_BEFORE, NODE_LEFT, RAY_FAILED, Blame
from actors.pool_queue import ABSENT_SECONDS, LOSSES_TO_ONE, SETTLE_SECONDS, WorkQueue
from actors.pool_records import ItemGivenUp, Loss, PoolFailure
from tests.actors.workers import Worker, hurried_pools, process_of


@pytest.fixture
def make_pool(local_ray: None, monkeypatch: pytest.MonkeyPatch) -> Iterator:
    with hurried_pools(monkeypatch, probe_timeout=1.0) as make:
        yield make


def results_of(pool: ActorPool, *items: tuple) -> dict[tuple, Any]:
    for item in items:
        pool.submit(item, "work")
    results, deadline = {}, time.monotonic() + 60
    while pool.pending:
        assert time.monotonic() < deadline, pool.describe()
        results.update(pool.poll())
    return results


@pytest.mark.slow
def test_an_item_that_kills_three_workers_is_set_aside_with_its_losses_and_the_others_are_not(make_pool) -> None:
    pool = make_pool(2)
    before = time.time()
    results = results_of(pool, ("die", 0.05), *(("live", 0.3 + number / 1e4) for number in range(10)))
    failed = results.pop(("die", 0.05))
    assert not any(isinstance(result, PoolFailure) for result in results.values())
    error = failed.error
    assert isinstance(error, ItemGivenUp)
    assert error.is_set_aside
    assert "failed 3 times" in str(error)
    counted = [loss for loss in error.losses if not loss.excuse]
    assert len(counted) == 3
    assert {loss.node for loss in counted} == {ray.get_runtime_context().get_node_id()}
    assert len({loss.process for loss in counted}) == 3, "each time another worker"
    assert all(before <= loss.time <= time.time() for loss in counted)


@pytest.mark.slow
def test_an_item_that_never_ends_is_set_aside_and_one_whose_method_raises_is_not(make_pool) -> None:
    pool = make_pool(1, timeout=0.5, probe_timeout=0.2)
    results = results_of(pool, ("live", 60.0))
    error = results["live", 60.0].error
    assert isinstance(error, ItemGivenUp)
    assert error.is_set_aside
    assert str(error).count("work took longer than") == 3
    assert isinstance(results_of(pool, ("raise", 0.0))["raise", 0.0].error, ValueError)


def test_an_actor_that_died_while_idle_does_not_count_against_the_next_item(make_pool) -> None:
    pool = make_pool(1)
    os.kill(process_of(pool), signal.SIGKILL)
    pool.submit(("live", 0.0), "work")
    (work,) = pool._queue.work()
    deadline = time.monotonic() + 30
    while not work.losses:
        assert time.monotonic() < deadline
        pool.poll(0.1)
    assert [loss.excuse for loss in work.losses] == [DEAD_BEFORE]
    assert pool.poll(30.0)[0][1] == ("live", 0.0)


def loss(place: int, at: float, *, worker: int = 0, node: str = "here", excuse: str = "") -> Loss:
    return Loss("died", place, worker, node, 1, 2.0, at, 1e9 + at, excuse)


def test_a_worker_is_no_fault_of_its_item_if_its_node_left_or_all_others_died_with_it() -> None:
    blame = Blame(nodes=lambda: {"here"})
    for worker, (place, at) in enumerate([(0, 100.0), (1, 101.5), (0, 200.0), (1, 206.0)]):
        blame.died(place, worker, at)
        blame.died(place, worker, at + 3.0)  # it is noticed again, when a probe fails
    losses = [
        loss(0, 50.0, worker=9, node="gone"),
        loss(0, 100.0, worker=0),
        loss(0, 200.0, worker=2),
        loss(0, 300.0, worker=8),
    ]
    assert blame.in_the_end(losses, {0, 1}) == [NODE_LEFT, ALL_DIED, "", ""]
    assert blame.in_the_end(losses, {0, 1, 2}) == [NODE_LEFT, "", "", ""], "one stayed"
    assert blame.in_the_end(losses, {0}) == [NODE_LEFT, "", "", ""], "a pool of one says nothing"
    assert blame.in_the_end([loss(0, 99.0, node="")], {0}) == [""], "a node that is not known has not left"
    one_after_the_other = [loss(0, 100.0, worker=0), loss(1, 101.5, worker=1)]
    assert blame.in_the_end(one_after_the_other, {0, 1}) == ["", ""], "the item was with both"


def test_a_failure_of_ray_and_one_death_before_the_item_came_are_excused(local_ray: None) -> None:
    blame, dead = Blame(), Worker.remote()
    ray.kill(dead)
    witness = dead.ping.remote()
    ray.wait([witness], timeout=30)
    alive = ray.put("pong")
    assert blame.at_first(TaskCancelledError(), alive, []) == RAY_FAILED
    assert blame.at_first(ActorDiedError(), alive, []) == ""
    assert blame.at_first(ActorDiedError(), witness, []) == DEAD_BEFORE
    assert blame.at_first(ActorDiedError(), witness, [loss(0, 1.0, excuse=DEAD_BEFORE)]) == "", "once"


def lose(queue: WorkQueue, at: float, *, excuse: str = "") -> bool:
    """The first item of a queue loses its worker; whether it goes on at once."""
    work = queue.start_first(0, at, at + 10)
    return queue.lose(work, loss(0, at, excuse=excuse))


def test_losses_that_do_not_count_are_bounded_and_the_item_is_then_given_up_but_not_set_aside() -> None:
    queue, most = WorkQueue("test", max_retries=2), 3 * LOSSES_TO_ONE
    queue.submit("item", "work", 0, None)
    for number in range(most - 1):
        assert lose(queue, float(number), excuse=RAY_FAILED)
    assert not lose(queue, float(most), excuse=RAY_FAILED)
    assert queue.waiting == 0
    queue.decide(most + SETTLE_SECONDS, lambda losses: [each.excuse for each in losses])
    ((_, failure),) = queue.take_results()
    assert not failure.error.is_set_aside
    assert str(failure.error).count(RAY_FAILED) == most
    assert queue.pending == 0


def test_an_item_is_decided_on_once_its_losses_are_understood() -> None:
    queue = WorkQueue("test", max_retries=2)
    queue.submit("item", "work", 0, None)
    assert [lose(queue, at) for at in (1.0, 2.0, 3.0)] == [True, True, False]
    queue.decide(2.9 + SETTLE_SECONDS, lambda _: pytest.fail("too early"))
    assert (queue.waiting, queue.pending, queue.has_news) == (0, 1, False)
    queue.decide(3.0 + SETTLE_SECONDS, lambda _: ["", "", NODE_LEFT])
    assert queue.waiting == 1, "only two count, so it is tried again"
    assert not lose(queue, 20.0)
    queue.decide(20.0 + SETTLE_SECONDS, lambda losses: [each.excuse for each in losses])
    ((_, failure),) = queue.take_results()
    assert failure.error.is_set_aside
    assert len(failure.error.losses) == 4
    assert "failed 3 times" in str(failure.error)


def test_a_worker_out_of_reach_is_waited_for_longer_since_its_node_may_have_left() -> None:
    queue = WorkQueue("test", max_retries=0)
    queue.submit("item", "work", 0, None)
    work = queue.start_first(0, 1.0, 10.0)
    assert not queue.lose(work, loss(0, 1.0), is_absent=True)
    assert queue.decisions() == [1.0 + ABSENT_SECONDS]


def test_a_lost_item_prefers_another_place(make_pool) -> None:
    pool = make_pool(2)
    pool.submit(("live", 0.0), "work")
    (work,) = pool._queue.work()
    first = pool.members[work.actor].index
    pool._time_out(work)
    pool._dispatch()
    assert pool.members[work.actor].index == 1 - first
