"""Simulated evaluators serve a real pool, and what is measured of it says how busy they were."""

from __future__ import annotations

import time

import pytest

from actors.pool import ActorPool
from benchmarks.scaling import QUEUED, reading, steady, withdraw
from benchmarks.scaling_members import Hosts, Item, Service
from tests.evaluators.outcomes import is_busy


def test_service_times_are_those_of_verdicts_scaled_to_their_mean() -> None:
    service = Service(0.5)
    drawn = [service.draw() for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(0.5, rel=0.05)
    assert max(drawn) > 4 * 0.5, "some programs take much longer than others"
    again = Service(0.5)
    assert [again.draw() for _ in range(100)] == drawn[:100]


def test_a_simulated_member_works_on_one_item_at_a_time_and_tells_how_long_each_waited(local_ray: None) -> None:
    hosts = Hosts(2)
    pool = ActorPool("simulated", hosts.member, 3, ahead=1, timeout=60.0)
    pool.wait_ready(60)
    began = time.monotonic()
    for _ in range(9):
        pool.submit(Item(0.3, began, "text"), "work")  # as if all came at once
    results = []
    while pool.pending:
        results += pool.poll()
    passed = time.monotonic() - began
    assert passed >= 0.9
    assert 9 * 0.3 <= hosts.busy_seconds() <= 3 * passed
    waited = sorted(result.waited for _, result in results)
    assert waited[3] >= 0.3
    assert waited[6] >= 0.6
    hosts.stop()


@pytest.mark.slow
def test_members_with_more_items_than_they_can_take_are_busy(local_ray: None) -> None:
    row = steady(4, 0.1, 1.5)
    assert 0.5 < row.busy <= 1.1
    assert row.items / row.seconds == pytest.approx(4 / 0.1, rel=0.5)
    assert 0.0 < row.driver < 2.0
    assert row.memory > 10
    assert steady(4, 0.0, 0.5, "ceiling").items > 10


def test_calls_beside_18_000_items_take_at_most_50_ms(local_ray: None) -> None:
    """As time passes on an idle machine; of processor time on every one."""
    calls = withdraw(2)
    assert QUEUED == 18_000
    assert len(calls) == 3
    assert all(0.0 < worked < 0.05 for _, _, worked in calls), calls
    assert all(passed < 0.05 for _, passed, _ in calls) or is_busy(), calls


def test_reading_a_response_takes_the_driver_some_time() -> None:
    characters, parsed, proposed = reading()
    assert characters > 100
    assert 0.0 < parsed < 0.1
    assert 0.0 < proposed < 0.1
