"""Simulated evaluators and engines: members of a pool that take time and no processor, many of them in one process.

A member answers `ping` and `apply` as a real actor does. It works on one item at a time, or several, in the order in
which they come; further ones wait there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import ray

from actors.calls import Call, Together
from actors.start import start_actor

VERDICTS = Path(__file__).parents[1] / "docs/results/coder/verdicts.parquet"
"""Whose seconds are drawn from: a run of 1,659 verdicts on an H200."""
_LEAST_SECONDS = 0.1  # what takes less never reached an evaluator: its text was refused, or known


@dataclass(frozen=True)
class Item:
    """What a member is given: how many seconds it takes, when it was submitted (on the monotonic clock), and a
    text as long as a program."""

    seconds: float
    submitted: float
    text: str


@dataclass(frozen=True)
class Done:
    """What a member returns: how long the item waited before it began, in seconds, and a text as long as evidence."""

    waited: float
    text: str


class Service:
    """Seconds drawn from those of measured verdicts, all divided by the same number so that their mean is `mean`."""

    def __init__(self, mean: float, seed: int = 0, rows: Path = VERDICTS) -> None:
        totals = [dict(cost).get("total", 0.0) for cost in pq.read_table(rows, columns=["cost"])["cost"].to_pylist()]
        seconds = np.array([total for total in totals if total >= _LEAST_SECONDS])
        self._seconds = (seconds * mean / seconds.mean()).tolist()
        self._random = np.random.default_rng(seed)
        self._drawn: list[int] = []

    def draw(self) -> float:
        """Seconds of one item."""
        if not self._drawn:
            self._drawn = self._random.integers(len(self._seconds), size=4096).tolist()
        return self._seconds[self._drawn.pop()]


def host_class() -> Any:
    """A local class, so that Ray sends it by value."""

    @ray.remote(num_cpus=0, max_concurrency=100_000)
    class Host:
        """The process of many members, each of which works on `at_once` items."""

        def __init__(self, at_once: int) -> None:
            self._at_once = at_once
            self._places: dict[int, asyncio.Semaphore] = {}
            self._began: dict[int, float] = {}  # of the items that are worked on
            self._numbers = 0
            self._busy = 0.0

        async def ping(self, member: int) -> str:
            return "pong"

        async def apply(self, call: tuple[int, Call | Together]) -> Done | list[Done]:
            member, func = call
            if member not in self._places:
                self._places[member] = asyncio.Semaphore(self._at_once)
            async with self._places[member]:
                if isinstance(func, Together):
                    return [await self._work(one.arguments[0]) for one in func.calls]
                return await self._work(func.arguments[0])

        async def _work(self, item: Item) -> Done:
            began, self._numbers = time.monotonic(), self._numbers + 1
            number = self._numbers
            self._began[number] = began
            await asyncio.sleep(item.seconds)
            ended = time.monotonic()
            del self._began[number]
            self._busy += ended - began
            return Done(began - item.submitted, item.text)

        async def busy_seconds(self) -> float:
            """Seconds that its members have worked until now, summed over the items."""
            now = time.monotonic()
            return self._busy + sum(now - began for began in self._began.values())

    return Host


def instant_host_class() -> Any:
    """Likewise."""

    @ray.remote(num_cpus=0)
    class InstantHost:
        """The process of many members that take no time, one item after the other, at the least cost for Ray."""

        def ping(self, member: int) -> str:
            return "pong"

        def apply(self, call: tuple[int, Call | Together]) -> Done | list[Done]:
            func, now = call[1], time.monotonic()
            items = [one.arguments[0] for one in getattr(func, "calls", (func,))]
            done = [Done(now - item.submitted, item.text) for item in items]
            return done if isinstance(func, Together) else done[0]

        def busy_seconds(self) -> float:
            """It takes no time."""
            return 0.0

    return InstantHost


class _Ping:
    """The method `ping` of a member, as Ray's handles have it."""

    def __init__(self, method: Any, member: int) -> None:
        self._method, self._member = method, member

    def remote(self) -> Any:
        return self._method.remote(self._member)


class _Apply(_Ping):
    """Likewise `apply`. An actor of its own gets one argument, so this sends one, too: Ray packs each by itself."""

    def remote(self, call: Call | Together) -> Any:
        return self._method.remote((self._member, call))


class Member:
    """The handle of a simulated member."""

    def __init__(self, host: Any, member: int) -> None:
        self.ping, self.apply = _Ping(host.ping, member), _Apply(host.apply, member)
        self.__ray_call__ = _Whereabouts()


class _Whereabouts:
    """A member does not tell where it is: it is not lost here."""

    def remote(self, *_: Any) -> None:
        return None


class Hosts:
    """Some processes, over which members are spread. Members work on `at_once` items at once; 0: they answer without
    taking any time."""

    def __init__(self, processes: int, at_once: int = 1) -> None:
        timed, instant = host_class(), instant_host_class()
        self._hosts = [
            start_actor(timed, {}, at_once) if at_once else start_actor(instant, {}) for _ in range(processes)
        ]

    def member(self, index: int) -> Any:
        """A handle for a pool, of the member with this index."""
        return Member(self._hosts[index % len(self._hosts)], index)

    def busy_seconds(self) -> float:
        """Seconds that all members have worked, summed over the items."""
        return sum(ray.get([host.busy_seconds.remote() for host in self._hosts], timeout=60))

    def stop(self) -> None:
        """Ends the processes."""
        for host in self._hosts:
            ray.kill(host)


def percentile(values: Sequence[float], share: float) -> float:
    """NaN if there are no values."""
    return float(np.quantile(np.asarray(values), share)) if values else float("nan")
