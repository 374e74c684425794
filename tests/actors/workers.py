"""Workers of pools that do what an item says, and their processes, for tests that kill or stop them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import ray

from actors import pool_members, pool_queue
from actors.pool import ActorPool


class Clock:
    """A clock that shows what a test says."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def worker_class() -> Any:
    """A local class, so that Ray sends it by value."""

    @ray.remote(num_cpus=0)
    class Worker:
        """Returns an item, dies of `die`, and raises at `raise`; of a pair, after so many seconds. A broken one never
        starts."""

        def __init__(self, broken: bool = False) -> None:
            if broken:
                raise ValueError("no such model")

        def ping(self) -> str:
            return "pong"

        def apply(self, func: Any, *arguments: Any) -> Any:
            return func(self, *arguments)

        def work(self, item: Any) -> Any:
            kind, seconds = item if isinstance(item, tuple) else (item, 0.0)
            time.sleep(seconds)
            if kind == "die":
                os._exit(1)
            if kind == "raise":
                raise ValueError("bad item")
            return item

    return Worker


Worker = worker_class()


@contextmanager
def hurried_pools(monkeypatch: pytest.MonkeyPatch, **usual: Any) -> Iterator[Callable[..., ActorPool]]:
    """Makes pools that neither pause before a start nor wait long for news of an actor, and stops them in the end.
    `usual`: options that they have unless asked for others."""
    for name in ("SETTLE_SECONDS", "ABSENT_SECONDS"):
        monkeypatch.setattr(pool_queue, name, 0.3)
    monkeypatch.setattr(pool_members, "pause_before_start", lambda losses: 0.0)
    pools = []

    def make(size: int, worker: Any = Worker, **options: Any) -> ActorPool:
        settings = {"timeout": 30.0, **usual, **options}
        pools.append(ActorPool("test", lambda _: worker.remote(), size, **settings))
        pools[-1].wait_ready(120)
        return pools[-1]

    try:
        yield make
    finally:
        for pool in pools:
            pool.stop()


def process_of(pool: ActorPool, actor: int | None = None) -> int:
    """The process of an actor, or of the only one of its pool. Never 0, which signals would take for this process."""
    if actor is None:
        ((actor, _),) = pool.members.items()
    deadline = time.monotonic() + 30
    while not (process := pool.members.whereabouts(actor)[1]):
        assert time.monotonic() < deadline, "it does not say where it is"
        time.sleep(0.01)
    return process


def results_of(pool: ActorPool) -> list[tuple[Any, Any]]:
    """All results of a pool, in the order in which they come."""
    results, deadline = [], time.monotonic() + 120
    while pool.pending:
        assert time.monotonic() < deadline, pool.describe()
        results += pool.poll()
    return results


def results_despite_kills(pool: ActorPool, chance: random.Random, every: int) -> tuple[list[tuple[Any, Any]], int]:
    """Likewise, while a worker that has work is killed after every so many; and how many were."""
    results: list[tuple[Any, Any]] = []
    kills, deadline = 0, time.monotonic() + 120
    while pool.pending:
        assert time.monotonic() < deadline, pool.describe()
        results += pool.poll()
        if len(results) > every * (kills + 1):
            kills += 1
            alive = [actor for actor, member in pool.members.items() if member.is_ready and pool.load.tickets(actor)]
            os.kill(process_of(pool, chance.choice(alive)), signal.SIGKILL)
    return results, kills
