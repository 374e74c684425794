"""Several items that go to an actor in one call, where a pool ends so many that its calls keep the driver busy.

Ray takes the driver half a millisecond of a core for a call, whatever is in it. The answers to a bundle come together,
so only items that would wait at their actor anyway are bundled, while others still wait for every actor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from actors.pool_queue import Work, WorkQueue

CALLS_A_SECOND = 250.0
"""So many calls take the driver an eighth of a core. A pool that ends more items bundles them."""
MOST = 8  # items in a call
_SECONDS = 1.0  # over which ends are counted


class Bundles:
    """The bundles that actors have, and how large the next one is to be."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: the monotonic one."""
        self._clock = clock
        self._bundles: dict[int, list[Work]] = {}  # by the ticket of the first
        self._first: dict[int, int] = {}  # by the ticket of any other: the first one's
        self._since, self._ended, self._rate = clock(), 0, 0.0

    def count(self, items: int) -> None:
        """Counts items that ended now."""
        self._ended += items
        passed = self._clock() - self._since
        if passed >= _SECONDS:
            self._rate, self._ended = self._ended / passed, 0
            self._since += passed

    def size(self, spare: int) -> int:
        """How many items the next call may have. `spare`: how many there are for each actor beyond those that have to
        wait."""
        return max(1, min(math.ceil(self._rate / CALLS_A_SECOND), 1 + spare, MOST))

    def gather(
        self, first: Work, queue: WorkQueue, actor: int, spare: int, goes_alone: Callable[[Work], bool]
    ) -> list[Work]:
        """Work that an actor has just been given, and what it is given from the queue in the same call. What has lost
        an actor before goes alone, and what `goes_alone` says."""

        def fits(work: Work) -> bool:
            return not (work.is_doubted or goes_alone(work))

        works, size = [first], self.size(spare) if fits(first) else 1
        while len(works) < size and queue.waiting and fits(queue.first()):
            works.append(queue.start_first(actor, self._clock(), None))
        if len(works) > 1:
            self.add(works)
        return works

    def add(self, works: Sequence[Work]) -> None:
        """An actor has been given these in one call, under the ticket of the first."""
        first = works[0].ticket
        self._bundles[first] = list(works)
        self._first.update((work.ticket, first) for work in works[1:])

    def length(self, work: Work) -> int:
        """The number of items in a call, by the first of them."""
        return len(self._bundles.get(work.ticket, (work,)))

    def take(self, work: Work) -> list[Work]:
        """All works of the call that this one is in, the first one first, which is none of a bundle any more."""
        works = self._bundles.pop(self._first.get(work.ticket, work.ticket), [work])
        for each in works:
            self._first.pop(each.ticket, None)
        return works

    def clear(self) -> None:
        """Forgets all bundles."""
        self._bundles.clear()
        self._first.clear()
