import asyncio
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from actors.pool import ActorPool
from actors.pool_records import PoolExhausted, PoolFailure


def worker_class() -> Any:
    """A local class, so that Ray sends it by value. By name, each actor would import RLlib first."""

    @ray.remote(num_cpus=0)
    class Worker:
        """Does what an item says."""

        def __init__(self, index: int, broken: bool = False) -> None:
            if broken:
                raise ValueError("no such model")
            self.index, self.weights = index, 0

        def ping(self) -> str:
            return "pong"

        def apply(self, func, *arguments):
            return func(self, *arguments)

        def work(self, item: tuple) -> tuple:
            kind, *rest = item
            if kind == "sleep":
                time.sleep(rest[0])
            elif kind == "raise":
                raise ValueError(f"bad item {rest[0]}")
            elif kind == "hang once" or kind == "die once":
                flag = Path(rest[0])
                if not flag.exists():
                    flag.touch()
                    if kind == "die once":
                        os._exit(1)
                    time.sleep(60)
            elif kind == "die":
                os._exit(1)
            return self.index, self.weights

        def set_weights(self, weights: int) -> int:
            if weights < 0 and self.index == 0:
                os._exit(1)
            self.weights = weights
            return self.index

    return Worker


def async_worker_class() -> Any:
    """Likewise."""

    @ray.remote(num_cpus=0)
    class AsyncWorker:
        """Sleeps for an item's seconds; returns the most items that it has worked on at once."""

        def __init__(self) -> None:
            self.running = self.most = 0

        def ping(self) -> str:
            return "pong"

        async def apply(self, func, *arguments):
            return await func(self, *arguments)

        async def work(self, seconds: float) -> int:
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await asyncio.sleep(seconds)
            finally:
                self.running -= 1
            return self.most

    return AsyncWorker


Worker, AsyncWorker = worker_class(), async_worker_class()


@pytest.fixture
def make_pool(local_ray: None) -> Iterator:
    pools = []

    def make(size: int = 2, factory=Worker.remote, **options) -> ActorPool:
        pools.append(ActorPool("test", factory, size, **{"timeout": 30.0, "probe_timeout": 1.0, **options}))
        return pools[-1]

    yield make
    for pool in pools:
        pool.stop()


@pytest.fixture(scope="module")
def pool(local_ray: None) -> Iterator[ActorPool]:
    """Two actors for the tests that do not kill them."""
    pool = ActorPool("shared", Worker.remote, 2, timeout=30.0)
    pool.wait_ready(60)
    yield pool
    pool.stop()


def run(pool: ActorPool, items: Iterable[Any], method: str) -> list[tuple[Any, Any]]:
    """(item, result) of all items, in order of completion."""
    for item in items:
        pool.submit(item, method)
    results = []
    while pool.pending:
        results += pool.poll()
    return results


def poll_until_restart(pool: ActorPool) -> None:
    """Returns once the pool has counted a restart, even if the new actor is not ready."""
    deadline = time.monotonic() + 30
    while pool.members.restarts == 0:
        assert time.monotonic() < deadline, "no actor was lost"
        pool.poll(0.1)


def test_results_come_in_order_of_completion_not_of_submission(pool: ActorPool) -> None:
    items = [("sleep", 1.0), ("sleep", 0.0), ("sleep", 0.1)]
    assert [item for item, _ in run(pool, items, "work")] == [items[1], items[2], items[0]]


def test_urgent_items_come_first_and_equals_in_order(make_pool) -> None:
    pool = make_pool(size=1)
    pool.wait_ready(60)
    pool.submit(("sleep", 0.3), "work")  # under way when the others come
    for number, priority in enumerate([0, 1, 0, -1]):
        pool.submit(("sleep", number / 1e4), "work", priority=priority)
    assert pool.queued == 4
    done = []
    while pool.pending:
        done += [item[1] for item, _ in pool.poll()]
    assert done == [0.3, 3e-4, 0.0, 2e-4, 1e-4]
    assert pool.queued == 0


def test_the_least_loaded_actor_is_next(make_pool) -> None:
    pool = make_pool(max_in_flight=3)
    pool.wait_ready(60)
    indices = sorted(result[0] for _, result in run(pool, [("sleep", 0.1)] * 6, "work"))
    assert indices == [0, 0, 0, 1, 1, 1]


def test_an_item_waits_for_a_busy_actor_rather_than_go_to_one_that_it_avoids(make_pool) -> None:
    pool = make_pool(avoid=lambda item: item[2:])
    pool.wait_ready(60)
    pool.submit(("sleep", 0.5), "work")
    (busy,) = (member.index for actor, member in pool.members.items() if pool.load.tickets(actor))
    results = run(pool, [("sleep", 0.0, 1 - busy), ("sleep", 0.0)], "work")
    places = {item: result[0] for item, result in results}
    assert places["sleep", 0.0, 1 - busy] == busy
    assert run(pool, [("sleep", 0.0, 0, 1)], "work")[0][1][0] in (0, 1), "without another, an avoided one has to do"


def test_items_with_affinity_go_together_unless_others_have_far_less_to_do(make_pool) -> None:
    pool = make_pool(factory=lambda _: AsyncWorker.remote(), max_in_flight=30, affinity=lambda item: item % 1 or None)
    pool.wait_ready(60)

    def places() -> list[set[float]]:
        running = pool._queue.running()
        return [{work.item for work in running if work.actor == actor} for actor, _ in pool.members.items()]

    for item in (5.25, 5.5, 6.25, 6.5, 7.25, 7.5):
        pool.submit(item, "work")
    assert places() == [{5.25, 6.25, 7.25}, {5.5, 6.5, 7.5}]
    pool.submit(8.0, "work")
    pool.submit(9.0, "work")
    assert places() == [{5.25, 6.25, 7.25, 8.0}, {5.5, 6.5, 7.5, 9.0}], "others go to the least loaded"
    more = [number + 0.25 for number in range(10, 30)]
    for item in more:
        pool.submit(item, "work")
    assert [len(items) for items in places()] == [21, 7]
    assert len(pool.withdraw(lambda item: True)) == 28
    assert not any(share.affinities for share in pool.load._shares.values())


def test_every_item_comes_once_when_an_actor_dies_in_the_middle(make_pool, tmp_path: Path) -> None:
    pool = make_pool(max_in_flight=3)
    items = [("sleep", 0.01 + index / 1e4) for index in range(20)]
    items[5] = ("die once", str(tmp_path / "died"))
    results = run(pool, items, "work")
    assert sorted(map(str, items)) == sorted(str(item) for item, _ in results)
    assert not [result for _, result in results if isinstance(result, PoolFailure)]
    assert pool.members.restarts == 1


def test_a_hanging_actor_is_timed_out_and_replaced(make_pool, tmp_path: Path, caplog) -> None:
    pool = make_pool(timeout=1.0, probe_timeout=0.5)
    pool.wait_ready(60)
    item = ("hang once", str(tmp_path / "hung"))
    started = time.monotonic()
    results = dict(run(pool, [item, ("sleep", 0.0)], "work"))
    assert not isinstance(results[item], PoolFailure)
    assert time.monotonic() - started < 20
    assert "took longer than 1 s" in caplog.text
    pool.wait_ready(60)
    assert pool.members.restarts == 1


def test_one_slow_request_leaves_the_others_of_an_async_actor_alone(make_pool) -> None:
    pool = make_pool(size=1, factory=lambda _: AsyncWorker.remote(), max_in_flight=4, timeout=2.0, max_retries=0)
    pool.wait_ready(60)
    pool.submit(30.0, "work")
    time.sleep(1.0)
    for seconds in (1.3, 1.4, 1.5):
        pool.submit(seconds, "work")
    results = {}
    while pool.pending:
        results.update(pool.poll(1.0))
    assert isinstance(results.pop(30.0), PoolFailure)
    assert list(results.values()) == [4, 4, 4]
    assert pool.members.restarts == 0


def test_an_exception_of_the_method_comes_back_and_the_item_is_not_retried(pool: ActorPool) -> None:
    results = dict(run(pool, [("raise", 7), ("sleep", 0.0)], "work"))
    assert isinstance(results["raise", 7].error, ValueError)
    assert "bad item 7" in str(results["raise", 7].error)
    assert not isinstance(results["sleep", 0.0], PoolFailure)
    assert pool.members.restarts == 0


def test_a_restarted_actor_gets_its_weights_before_it_works(make_pool, tmp_path: Path) -> None:
    current = ray.put(5)
    pool = make_pool(size=1, on_restart=lambda actor: ray.get(actor.set_weights.remote(current), timeout=30))
    pool.wait_ready(60)
    assert pool.broadcast("set_weights", current, timeout=30) == [0]
    results = dict(run(pool, [("die once", str(tmp_path / "died")), ("sleep", 0.0)], "work"))
    assert set(results.values()) == {(0, 5)}


def test_a_broadcast_returns_the_answers_of_living_actors_and_restarts_dead_ones(make_pool) -> None:
    pool = make_pool(on_restart=lambda actor: ray.get(actor.set_weights.remote(9), timeout=30))
    pool.wait_ready(60)
    assert pool.broadcast("set_weights", -3, timeout=30) == [1]
    pool.wait_ready(60)
    assert len(pool.members.healthy()) == 2
    results = {index: weights for _, (index, weights) in run(pool, [("sleep", 0.2)] * 2, "work")}
    assert results == {0: 9, 1: -3}


def test_a_broadcast_reaches_actors_before_items_submitted_after_it(pool: ActorPool) -> None:
    pool.wait_ready(60)
    begun = pool.begin_broadcast("set_weights", 4, timeout=30)
    for seconds in (0.01, 0.02):
        pool.submit(("sleep", seconds), "work")
    done = []
    while pool.pending or not begun.done:
        done += [result for _, result in pool.poll()]
    assert sorted(begun.results) == [0, 1]
    assert {weights for _, weights in done} == {4}


def test_an_actor_that_does_not_answer_a_broadcast_in_time_is_replaced(make_pool) -> None:
    pool = make_pool(on_restart=lambda actor: ray.get(actor.set_weights.remote(9), timeout=30))
    pool.wait_ready(60)
    begun = pool.begin_broadcast("work", ("sleep", 60.0), timeout=0.5)
    while not begun.done:
        pool.poll(0.1)
    assert begun.results == []
    assert pool.members.restarts == 2
    pool.wait_ready(60)
    assert {weights for _, (_, weights) in run(pool, [("sleep", 0.2)] * 2, "work")} == {9}


def test_a_pause_holds_back_submitted_items_and_not_running_ones(make_pool) -> None:
    pool = make_pool(1)
    pool.wait_ready(60)
    pool.submit(("sleep", 0.5), "work")
    assert pool.poll(0.0) == []
    pool.pause()
    pool.submit(("sleep", 0.0), "work")
    assert [item for item, _ in pool.poll(30.0)] == [("sleep", 0.5)]
    assert pool.poll(1.0) == []
    assert pool.queued == pool.pending == 1
    pool.resume()
    assert [item for item, _ in pool.poll(30.0)] == [("sleep", 0.0)]


def test_a_lost_actor_is_not_replaced_while_starts_are_postponed(make_pool) -> None:
    pool = make_pool(1)
    pool.wait_ready(60)
    pool.members.postpone_starts(True)
    pool.submit(("die",), "work")
    poll_until_restart(pool)
    assert pool.poll(1.0) == []
    assert (len(pool.members), pool.pending, pool.load.is_busy) == (0, 1, False)
    pool.withdraw(lambda _: True)
    pool.submit(("sleep", 0.0), "work")
    pool.members.postpone_starts(False)
    assert [item for item, _ in pool.poll(60.0)] == [("sleep", 0.0)]


def test_a_restarted_actor_waits_for_its_weights_while_restarts_are_held(make_pool) -> None:
    given = []
    pool = make_pool(1, on_restart=given.append)
    pool.wait_ready(60)
    pool.members.hold_restarts("the weights are in use")
    pool.submit(("die",), "work")
    poll_until_restart(pool)
    deadline = time.monotonic() + 30
    while pool.members.describe() != "actor 0 waits because the weights are in use":
        assert time.monotonic() < deadline, pool.members.describe()
        pool.poll(0.1)
    assert pool.members.restarts == 1
    assert (given, pool.members.healthy()) == ([], [])
    pool.members.hold_restarts("")
    pool.wait_ready(60)
    assert len(given) >= 1


def test_withdrawn_items_do_not_come_back(make_pool) -> None:
    pool = make_pool(size=1, factory=lambda _: AsyncWorker.remote(), max_in_flight=2)
    pool.wait_ready(60)
    for seconds in (60.0, 50.0, 0.1, 40.0):
        pool.submit(seconds, "work")
    assert pool.withdraw(lambda seconds: seconds > 30, queued_only=True) == [40.0]
    assert pool.withdraw(lambda seconds: seconds > 55) == [60.0]
    (done,) = pool.poll(20)
    assert done[0] == 0.1  # in the place of the cancelled item
    assert pool.pending == 1
    assert pool.withdraw(lambda _: True) == [50.0]
    assert pool.pending == pool.queued == 0


def test_only_actors_with_work_are_busy(make_pool) -> None:
    pool = make_pool(size=2)
    pool.wait_ready(60)
    assert pool.load.busy_seconds == 0.0
    started = time.monotonic()
    run(pool, [("sleep", 0.5), ("sleep", 1.0)], "work")
    assert 1.5 <= pool.load.busy_seconds <= 2 * (time.monotonic() - started)
    before = pool.load.busy_seconds
    time.sleep(0.2)
    assert pool.load.busy_seconds == before


def test_actors_that_never_start_give_failures_and_no_endless_wait(make_pool, caplog) -> None:
    pool = make_pool(size=1, factory=lambda index: Worker.remote(index, broken=True), max_failed_starts=2)
    (item, failure), *rest = run(pool, [("sleep", 0.0)], "work")
    assert item == ("sleep", 0.0)
    assert not rest
    assert isinstance(failure.error, PoolExhausted)
    assert "no such model" in caplog.text
    with pytest.raises(PoolExhausted):
        pool.wait_ready(5)


def test_items_stream_from_pool_to_pool(make_pool, pool: ActorPool) -> None:
    first, second = pool, make_pool(size=1)
    for index in range(3):
        first.submit(("sleep", index / 1e4), "work")
    seen = []
    while first.pending or second.pending:
        for item, _ in first.poll(0.01):
            second.submit(item, "work")
        seen += [item for item, _ in second.poll(0.01)]
    assert sorted(seen) == [("sleep", index / 1e4) for index in range(3)]


def test_polling_an_idle_pool_returns_at_once(pool: ActorPool) -> None:
    started = time.monotonic()
    assert pool.poll(60.0) == []
    assert time.monotonic() - started < 30
