"""Several items travel in one call of a fast pool, and each still comes back once, with nobody else's fault."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from actors.pool import AHEAD_BACKLOG, ActorPool
from actors.pool_bundles import CALLS_A_SECOND, MOST, Bundles
from actors.pool_manager import Manager
from actors.pool_queue import Work
from actors.pool_records import ItemGivenUp, PoolFailure
from tests.actors.workers import Clock, hurried_pools, results_despite_kills, results_of

_SIZE = 3


@pytest.fixture
def make_pool(local_ray: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ActorPool]]:
    """Pools that bundle three items whenever so many wait, however fast they are."""
    monkeypatch.setattr(Bundles, "size", lambda self, spare: max(1, min(_SIZE, 1 + spare)))
    with hurried_pools(monkeypatch, probe_timeout=5.0, ahead=1) as make:
        yield make


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of items in each call that pools make."""
    seen, call = [], Manager.call

    def count(self: Manager, actor: int, tag: Any, called: Any, *arguments: Any, **options: Any) -> None:
        seen.append(len(getattr(called, "calls", [called])))
        call(self, actor, tag, called, *arguments, **options)

    monkeypatch.setattr(Manager, "call", count)
    return seen


def live(count: int, seconds: float = 0.0) -> list[tuple[str, float]]:
    return [("live", seconds + number / 1e7) for number in range(count)]


def submit(pool: ActorPool, items: list[Any]) -> None:
    pool.pause()
    for item in items:
        pool.submit(item, "work")
    pool.resume()
    pool.poll(0.0)


def test_the_size_of_a_bundle_follows_the_rate_of_the_pool_and_what_waits() -> None:
    clock = Clock()
    bundles = Bundles(clock)
    assert bundles.size(spare=100) == 1
    for rate, expected in (
        (CALLS_A_SECOND, 1),
        (CALLS_A_SECOND + 10, 2),
        (3.5 * CALLS_A_SECOND, 4),
        (1e6, MOST),
        (0, 1),
    ):
        clock.now += 2.0
        bundles.count(round(2 * rate))
        assert bundles.size(spare=100) == expected, rate
        assert bundles.size(spare=0) == bundles.size(spare=-3) == 1
        assert bundles.size(spare=1) == min(expected, 2)


def test_what_is_taken_from_a_bundle_takes_all_of_it() -> None:
    bundles, works = Bundles(Clock()), [Work(ticket, None, "work", 0, None) for ticket in range(4)]
    bundles.add(works[:3])
    assert [bundles.length(work) for work in works] == [3, 1, 1, 1]
    assert bundles.take(works[1]) == works[:3]
    assert [bundles.take(work) for work in works] == [[work] for work in works]


def test_each_item_of_a_bundle_comes_once_in_order(make_pool, calls) -> None:
    pool, items = make_pool(2), live(60)
    submit(pool, items)
    assert sorted(results_of(pool)) == [(item, item) for item in items]
    assert max(calls) == _SIZE
    assert sum(calls) == len(items)
    assert len(calls) < len(items) / 2


def test_what_an_item_raises_is_its_own(make_pool, calls) -> None:
    pool = make_pool(1)
    items = [*live(2, 0.2), ("raise", 0.0), *live(2 * AHEAD_BACKLOG)]
    submit(pool, items)
    results = dict(results_of(pool))
    assert max(calls) == _SIZE
    assert str(results.pop(items[2]).error) == "bad item"
    assert all(item == result for item, result in results.items())
    assert pool.members.restarts == 0


def test_a_deadly_item_is_given_alone_before_it_counts(make_pool, calls, caplog) -> None:
    pool = make_pool(1, max_retries=0)
    items = [*live(2, 0.2), ("die", 0.0), *live(2 * AHEAD_BACKLOG)]
    submit(pool, items)
    assert calls[:2] == [1, _SIZE], "the deadly one goes along with others"
    results = dict(results_of(pool))
    error = results.pop(items[2]).error
    assert isinstance(error, ItemGivenUp)
    assert len(error.losses) == 1
    assert "3 items are tried again one by one: " in caplog.text
    assert all(item == result for item, result in results.items())
    assert len(results) == len(items) - 1
    assert pool.members.restarts == 2


def test_what_died_together_is_given_to_an_actor_that_has_nothing_else(make_pool, monkeypatch) -> None:
    """Otherwise the answer of the one before is lost if the deadly one ends the process at once."""
    pool, call, held = make_pool(1, max_retries=0), Manager.call, dict[Any, list[int]]()

    def note(self: Manager, actor: int, tag: Any, called: Any, *arguments: Any, **options: Any) -> None:
        for each in getattr(called, "calls", [called]):
            if each.arguments:
                held.setdefault(each.arguments[0], []).append(len(pool.load.tickets(actor)))
        call(self, actor, tag, called, *arguments, **options)

    monkeypatch.setattr(Manager, "call", note)
    items = [*live(2, 0.2), ("die", 0.0), *live(2 * AHEAD_BACKLOG)]
    submit(pool, items)
    results_of(pool)
    assert [held[item] for item in items[1 : 1 + _SIZE]] == [[2, 1]] * _SIZE


def test_the_items_of_a_bundle_have_their_time_together(make_pool) -> None:
    pool = make_pool(1, timeout=2.0, max_retries=0)
    submit(pool, [*live(1 + _SIZE, 1.2), *live(2 * AHEAD_BACKLOG)])
    assert not any(isinstance(result, PoolFailure) for _, result in results_of(pool))
    assert pool.members.restarts == 0


def test_what_is_taken_back_from_a_bundle_leaves_the_others(make_pool, calls) -> None:
    pool = make_pool(1)
    items = [*live(2, 0.5), *live(2 * AHEAD_BACKLOG)]
    submit(pool, items)
    assert calls == [1, _SIZE]
    assert pool.withdraw(lambda item: item in items[1:2], queued_only=True) == []
    assert pool.withdraw(lambda item: item in items[1:3]) == items[1:3]
    assert sorted(results_of(pool)) == sorted((item, item) for item in (items[0], *items[3:]))


@pytest.mark.slow
def test_each_of_2_000_items_comes_once_while_workers_die_at_random(make_pool) -> None:
    pool, chance = make_pool(4), random.Random(7)
    items = live(2_000)
    submit(pool, items)
    results, kills = results_despite_kills(pool, chance, every=300)
    assert kills >= 5
    assert sorted(results) == [(item, item) for item in items]
    assert not pool.load.is_busy
