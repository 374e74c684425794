"""A pool's work for an item does not grow with what waits; items given ahead wait for no driver, and none is lost."""

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray

from actors.pool import AHEAD_BACKLOG, ActorPool
from actors.pool_load import Load
from actors.pool_queue import Work
from actors.pool_records import ItemGivenUp, PoolFailure
from tests.actors.workers import Worker, hurried_pools, results_despite_kills, results_of


def timed_worker_class() -> Any:
    """A local class, so that Ray sends it by value."""

    @ray.remote(num_cpus=0)
    class TimedWorker:
        """Sleeps for an item's seconds; returns when it began and when it ended."""

        def ping(self) -> str:
            return "pong"

        def apply(self, func: Any, *arguments: Any) -> Any:
            return func(self, *arguments)

        def work(self, seconds: float) -> tuple[float, float]:
            began = time.monotonic()
            time.sleep(seconds)
            return began, time.monotonic()

    return TimedWorker


TimedWorker = timed_worker_class()


@pytest.fixture
def make_pool(local_ray: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ActorPool]]:
    with hurried_pools(monkeypatch, probe_timeout=5.0, ahead=1) as make:
        yield make


def test_a_pool_that_waits_does_not_look_again_and_again(
    make_pool: Callable[..., ActorPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, looks = make_pool(2, TimedWorker), []
    for seconds in (0.0, 1.5):
        pool.submit(seconds, "work")
    wait = ray.wait
    monkeypatch.setattr(ray, "wait", lambda *calls, **options: looks.append(calls) or wait(*calls, **options))
    assert len(results_of(pool)) == 2
    assert 0 < len(looks) < 40, "two answers came, and for a second and a half none"


def best_of(calls: int, call: Callable[[int], Any]) -> float:
    """Seconds of the fastest of several calls, which are told their number."""
    seconds = []
    for number in range(calls):
        began = time.perf_counter()
        call(number)
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def queue_of(items: int) -> ActorPool:
    """A pool without actors, in which so many items wait."""
    pool = ActorPool("test", lambda _: Worker.remote(), 0, key=lambda item: ("item", item))
    for number in range(items):
        pool.submit(number, "work")
    return pool


def withdraw_seconds(items: int) -> float:
    """Of 100 items in the middle."""
    pool, middle = queue_of(items), items // 2

    def withdraw(call: int) -> None:
        wanted = range(middle + 100 * call, middle + 100 * (call + 1))
        assert pool.withdraw_keys([("item", number) for number in wanted]) == list(wanted)

    return best_of(8, withdraw)


def test_taking_items_back_takes_no_longer_if_more_others_wait() -> None:
    assert withdraw_seconds(16_000) < 4 * withdraw_seconds(2_000)


def test_500_of_18_000_items_are_taken_back_within_50_ms() -> None:
    pool = queue_of(18_000)
    assert best_of(3, lambda call: pool.withdraw(lambda item: item // 500 == 10 + call)) < 0.05
    assert pool.pending == pool.queued == 16_500
    assert best_of(3, lambda call: pool.withdraw_keys([("item", 500 * call + n) for n in range(500)])) < 0.05
    assert pool.pending == pool.queued == 15_000


def test_polling_takes_no_longer_if_more_items_wait(make_pool) -> None:
    pool = make_pool(1)
    pool.submit(("live", 20.0), "work")

    def polls(items: int) -> float:
        while pool.queued < items:
            pool.submit(("live", 0.0), "work")
        return best_of(20, lambda _: pool.poll(0.0))

    few = polls(1_000)
    assert polls(16_000) < 4 * few


def test_finding_an_actor_takes_no_longer_if_there_are_more() -> None:
    def seconds(actors: int) -> float:
        load, work = Load(1, ahead=1), [Work(ticket, None, "work", 0, None) for ticket in range(10_000)]
        for actor in range(actors):
            load.open(actor, actor)

        def pass_items(call: int) -> None:
            given = []
            for ticket in range(1000 * call, 1000 * (call + 1)):
                actor = load.least_loaded(None, has_ahead=True)
                assert actor is not None
                load.assign(actor, work[ticket])
                given.append((actor, work[ticket]))
                if len(given) == 10:
                    for actor, done in given:
                        load.release(actor, done)
                    given.clear()

        return best_of(10, pass_items)

    assert seconds(2_000) < 4 * seconds(20)


def test_keys_find_all_items_that_have_them_but_those_that_run(make_pool) -> None:
    pool = make_pool(1, ahead=0, key=lambda item: round(item[1] * 1e4) % 2)
    for number in range(6):
        pool.submit(("live", 0.5 + number / 1e4), "work")
    assert pool.withdraw_keys([0, "nobody's"], queued_only=True) == [("live", 0.5002), ("live", 0.5004)]
    assert pool.withdraw_keys([0], queued_only=True) == []
    assert pool.withdraw_keys([1]) == [("live", 0.5001), ("live", 0.5003), ("live", 0.5005)]
    assert [item for item, _ in results_of(pool)] == [("live", 0.5)]


def test_an_actor_begins_with_the_next_item_while_the_driver_does_something_else(make_pool) -> None:
    pool = make_pool(1, TimedWorker)
    for number in range(2 + AHEAD_BACKLOG):
        pool.submit(0.2 + number / 1e4, "work")
    assert pool.queued == AHEAD_BACKLOG
    time.sleep(1.5)
    first, second, third = sorted(results_of(pool))[:3]
    assert second[1][0] - first[1][1] < 0.2
    assert third[1][0] - second[1][1] > 0.5, "nobody gave it a third one"


def test_no_item_is_given_ahead_while_few_wait(make_pool) -> None:
    pool = make_pool(2)
    for number in range(2 + 2 * AHEAD_BACKLOG - 1):
        pool.submit(("live", 0.3 + number / 1e4), "work")
    assert pool.queued == 2 * AHEAD_BACKLOG - 1
    pool.submit(("live", 0.0), "work")
    assert pool.queued == 2 * AHEAD_BACKLOG - 1
    assert len(results_of(pool)) == 2 + 2 * AHEAD_BACKLOG


def test_the_time_of_an_item_that_is_given_ahead_begins_when_the_one_before_has_ended(make_pool) -> None:
    pool = make_pool(1, timeout=2.0, max_retries=0)
    for number in range(2 + AHEAD_BACKLOG):
        pool.submit(("live", 1.2 if number < 2 else 0.0), "work")
    assert not any(isinstance(result, PoolFailure) for _, result in results_of(pool))
    assert pool.members.restarts == 0


def test_an_item_that_was_given_ahead_does_not_count_the_loss_of_its_actor(make_pool) -> None:
    pool = make_pool(1, max_retries=0)
    items = [("die", 0.5), *(("live", number / 1e4) for number in range(1 + AHEAD_BACKLOG))]
    for item in items:
        pool.submit(item, "work")
    assert pool.queued == AHEAD_BACKLOG
    results = dict(results_of(pool))
    assert isinstance(results.pop(items[0]).error, ItemGivenUp)
    assert list(results.items()) == [(item, item) for item in items[1:]], "in their order"


def test_an_actor_that_hangs_gives_back_what_it_was_given_ahead(make_pool) -> None:
    pool = make_pool(1, timeout=1.0, probe_timeout=0.5, max_retries=0)
    items = [("live", 60.0), *(("live", number / 1e4) for number in range(1 + AHEAD_BACKLOG))]
    for item in items:
        pool.submit(item, "work")
    results = dict(results_of(pool))
    assert "took longer than 1 s" in str(results.pop(items[0]).error)
    assert list(results.items()) == [(item, item) for item in items[1:]]


def test_only_actors_that_work_on_one_item_are_given_some_ahead() -> None:
    with pytest.raises(ValueError, match="ahead must be 0 if max_in_flight is not 1, got 2"):
        ActorPool("test", lambda _: Worker.remote(), 1, max_in_flight=4, ahead=2)


@pytest.mark.slow
def test_each_of_2_000_items_comes_once_while_workers_die_at_random(make_pool) -> None:
    pool, chance = make_pool(4), random.Random(7)
    items = [("live", number / 1e7) for number in range(2_000)]
    for item in items:
        pool.submit(item, "work")
    results, kills = results_despite_kills(pool, chance, every=300)
    assert kills >= 5
    assert sorted(item for item, _ in results) == items
    assert all(result == item for item, result in results)
    assert pool.members.restarts >= kills - 1
    assert not pool.load.is_busy
