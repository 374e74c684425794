"""What a pool says while it waits, and whose fault it is if an actor cannot be prepared."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from actors import pool_waits
from actors.pool import ActorPool, wait_any
from tests.actors.workers import Worker


@pytest.fixture
def make_pool(local_ray: None) -> Iterator:
    pools = []

    def make(factory=lambda _: Worker.remote(), **options) -> ActorPool:
        pools.append(ActorPool("test", factory, 1, timeout=30.0, probe_timeout=1.0, **options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.stop()


@pytest.mark.slow
def test_a_restarted_actor_waits_if_its_weights_cannot_be_had_and_is_replaced_if_it_does_not_take_them(
    make_pool,
) -> None:
    failures = [ValueError("no learner"), ValueError("no learner"), ray.exceptions.GetTimeoutError("no answer")]

    def give(actor: Any) -> None:
        if failures:
            raise failures.pop(0)

    pool = make_pool(on_restart=give, max_failed_starts=2)
    pool.wait_ready(60)
    pool.submit("die", "work")
    deadline = time.monotonic() + 30
    while pool.members.restarts == 0:
        assert time.monotonic() < deadline, "no actor was lost"
        pool.poll(0.1)
    pool.withdraw(lambda _: True)
    pool.submit("live", "work")
    for _ in range(2):
        with pytest.raises(ValueError, match="no learner"):
            pool.poll(30.0)
        assert pool.members.restarts == 1
    assert pool.poll(60.0) == [("live", "live")]
    assert (failures, pool.members.restarts) == ([], 2)


def test_work_that_no_actor_can_take_is_told_of(make_pool, caplog, monkeypatch) -> None:
    monkeypatch.setattr(pool_waits, "NOTICE_SECONDS", 0.2)
    nowhere = Worker.options(resources={"nowhere": 1.0})
    pool = make_pool(lambda _: nowhere.remote(), start_timeout=50.0)
    pool.submit("live", "work")
    deadline = time.monotonic() + 20
    while "waited" not in caplog.text:
        assert time.monotonic() < deadline
        pool.poll(0.1)
    assert re.search(r"pool test: 1 item\(s\) have waited \d+ s: actor 0 starts and has [45]\d s left", caplog.text)
    with pytest.raises(TimeoutError, match=r"0 of 1 actors are ready after 0 s; actor 0 starts and has [45]\d s left"):
        pool.wait_ready(0.0)


def test_a_pool_in_two_roles_is_waited_for_once(make_pool) -> None:
    pool = make_pool()
    pool.wait_ready(60)
    pool.submit("live", "work")
    deadline = time.monotonic() + 60
    while not (done := pool.poll(0.0)) and time.monotonic() < deadline:
        wait_any([pool, pool], 1.0)
    assert done == [("live", "live")]
