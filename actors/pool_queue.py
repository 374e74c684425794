"""The items of a pool: those that wait, those that an actor works on, and results that nobody has taken yet.

Knows actors by number only, and nothing of Ray. Every item leaves exactly once: as a result, as a PoolFailure, or
withdrawn.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from actors.pool_records import PoolFailure

_log = logging.getLogger(__name__)


@dataclass
class Work:
    """An item on its way. `actor` works on it until `deadline` (seconds of the monotonic clock); None: it waits."""

    ticket: int
    item: Any
    method: str
    priority: int
    affinity: Hashable
    failures: int = 0
    actor: int | None = None
    deadline: float = 0.0


class WorkQueue:
    """Hands out work by priority, lower first, and among equals in the order of submission.

    Work whose actor failed returns to its place in the queue, up to `max_retries` times.
    """

    def __init__(self, name: str, max_retries: int) -> None:
        """`name` is the pool's, for messages."""
        self._name, self._max_retries = name, max_retries
        self._tickets = itertools.count()
        self._work: dict[int, Work] = {}
        self._waiting: list[tuple[int, int]] = []  # a heap of (priority, ticket)
        self._results: list[tuple[Any, Any]] = []

    @property
    def pending(self) -> int:
        """Items submitted and not taken as results yet."""
        return len(self._work) + len(self._results)

    @property
    def waiting(self) -> int:
        """Items that no actor works on."""
        return len(self._waiting)

    @property
    def has_news(self) -> bool:
        """Whether there are results to take, or no work that could give any."""
        return bool(self._results) or not self._work

    def work(self) -> list[Work]:
        """All work without a result, in the order of submission."""
        return list(self._work.values())

    def running(self) -> list[Work]:
        """The work that actors have."""
        return [work for work in self._work.values() if work.actor is not None]

    def find(self, ticket: int) -> Work | None:
        """The work with this number, None if it is finished or withdrawn."""
        return self._work.get(ticket)

    def submit(self, item: Any, method: str, priority: int, affinity: Hashable) -> None:
        """Queues an item."""
        ticket = next(self._tickets)
        self._work[ticket] = Work(ticket, item, method, priority, affinity)
        heapq.heappush(self._waiting, (priority, ticket))

    def first(self) -> Work:
        """The work that is to run next. There must be some that waits."""
        return self._work[self._waiting[0][1]]

    def start_first(self, actor: int, deadline: float) -> Work:
        """Gives the first work to an actor."""
        work = self._work[heapq.heappop(self._waiting)[1]]
        work.actor, work.deadline = actor, deadline
        return work

    def retry(self, work: Work, reason: str) -> None:
        """Puts work whose actor failed back in its place, or gives it up."""
        work.failures += 1
        work.actor = None
        if work.failures > self._max_retries:
            _log.error("pool %s: %s given up after %d attempts: %s", self._name, work.method, work.failures, reason)
            text = f"pool {self._name}: {work.method} failed {work.failures} times, the last time because: {reason}"
            self.finish(work, PoolFailure(RuntimeError(text)))
            return
        _log.warning("pool %s: %s is tried again elsewhere: %s", self._name, work.method, reason)
        heapq.heappush(self._waiting, (work.priority, work.ticket))

    def finish(self, work: Work, result: Any) -> None:
        """Ends work with a result."""
        self._results.append((work.item, result))
        self.remove(work)

    def remove(self, work: Work) -> None:
        """Drops work without a result."""
        del self._work[work.ticket]
        if work.actor is None and (work.priority, work.ticket) in self._waiting:
            self._waiting.remove((work.priority, work.ticket))
            heapq.heapify(self._waiting)

    def take_results(self) -> list[tuple[Any, Any]]:
        """(item, result) of all work that ended since the last call, in order of completion."""
        results, self._results = self._results, []
        return results

    def clear(self) -> None:
        """Forgets everything."""
        for items in (self._work, self._waiting, self._results):
            items.clear()
