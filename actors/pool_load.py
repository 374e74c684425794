"""Which actor of a pool has which work, which is to have the next item, and how long they were busy.

Knows actors by number only. Finding the next actor takes a time that does not depend on how many there are, but for the
logarithm of a heap.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

from actors.pool_queue import Work

_DETOUR = 16  # an actor that has work of the same affinity is preferred until it has so many items more than the others

_Free = tuple[int, int, int]  # load, place and number of an actor


@dataclass
class _Share:
    """The work of one actor: its tickets in the order in which it was given them, their affinities, and since when it
    has had any."""

    tickets: dict[int, None] = field(default_factory=dict)
    affinities: Counter[Hashable] = field(default_factory=Counter)
    busy_since: float = 0.0


class Load:
    """The work of all actors of a pool. Each may work on `max_in_flight` items at once, and have `ahead` more."""

    def __init__(self, max_in_flight: int, ahead: int = 0) -> None:
        self._max_in_flight, self._most = max_in_flight, max_in_flight + ahead
        self._shares: defaultdict[int, _Share] = defaultdict(_Share)
        self._places: dict[int, int] = {}  # of the actors that may be given work
        self._free: list[_Free] = []  # a heap, with entries that are not true any more
        self._listed: set[_Free] = set()  # its entries, so that none is there twice
        self._holders: defaultdict[Hashable, dict[int, None]] = defaultdict(dict)  # the actors by the affinity of work
        self._busy = 0
        self._busy_seconds = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether an actor has work."""
        return self._busy > 0

    @property
    def busy_seconds(self) -> float:
        """Seconds that each actor has had work for, up to now, summed over the actors. For any thread."""
        now, shares = time.monotonic(), list(self._shares.values())
        return self._busy_seconds + sum(now - share.busy_since for share in shares if share.tickets)

    def open(self, actor: int, place: int) -> None:
        """From now on an actor may be given work."""
        self._places[actor] = place
        self._list(actor)

    def close(self, actor: int) -> None:
        """From now on an actor may be given no work."""
        self._places.pop(actor, None)

    def least_loaded(self, affinity: Hashable, avoided: Collection[int] = (), *, has_ahead: bool = False) -> int | None:
        """The actor that is to have the next item; None: none has room. `has_ahead`: it may wait there.

        An actor that has work of the same affinity is preferred. One in an `avoided` place is the last choice.
        """
        limit = self._most if has_ahead else self._max_in_flight
        found = [
            (place in avoided, load - _DETOUR, place, actor)
            for actor in self._holders.get(affinity, ())
            if (place := self._places.get(actor)) is not None and (load := len(self._shares[actor].tickets)) < limit
        ]
        passed: list[_Free] = []
        while (free := self._first_free()) is not None and free[0] < limit:
            if free[1] not in avoided:
                found.append((False, *free))
                break
            passed.append(heapq.heappop(self._free))
        for free in passed:
            found.append((True, *free))
            heapq.heappush(self._free, free)
        return min(found)[-1] if found else None

    def assign(self, actor: int, work: Work) -> None:
        """Counts work that an actor is given."""
        share = self._shares[actor]
        if not share.tickets:
            share.busy_since = time.monotonic()
            self._busy += 1
        share.tickets[work.ticket] = None
        if work.affinity is not None:
            share.affinities[work.affinity] += 1
            self._holders[work.affinity][actor] = None
        self._list(actor)

    def release(self, actor: int, work: Work) -> None:
        """Counts work that an actor no longer has."""
        share = self._shares[actor]
        if work.ticket not in share.tickets:
            return
        del share.tickets[work.ticket]
        if work.affinity is not None:
            share.affinities[work.affinity] -= 1
            if not share.affinities[work.affinity]:
                del share.affinities[work.affinity]
                del self._holders[work.affinity][actor]
                if not self._holders[work.affinity]:
                    del self._holders[work.affinity]
        if not share.tickets:
            self._busy -= 1
            self._busy_seconds += time.monotonic() - share.busy_since
        self._list(actor)

    def tickets(self, actor: int) -> list[int]:
        """The work of an actor, in the order in which it was given it."""
        return list(self._shares[actor].tickets)

    def first(self, actor: int) -> int | None:
        """The oldest work of an actor."""
        return next(iter(self._shares[actor].tickets), None)

    def drop(self, actor: int) -> None:
        """Forgets an actor, which has no work any more."""
        self.close(actor)
        self._shares.pop(actor, None)

    def clear(self) -> None:
        """Forgets all actors."""
        for part in (self._shares, self._places, self._free, self._listed, self._holders):
            part.clear()
        self._busy = 0

    def _list(self, actor: int) -> None:
        """Enters an actor among the free ones with the load that it has now."""
        place, load = self._places.get(actor), len(self._shares[actor].tickets)
        if place is None or load >= self._most:
            return
        free = (load, place, actor)
        if free not in self._listed:
            self._listed.add(free)
            heapq.heappush(self._free, free)

    def _first_free(self) -> _Free | None:
        """The actor with the least load that may be given work. Drops entries that are not true any more."""
        while self._free:
            load, place, actor = free = self._free[0]
            if self._places.get(actor) == place and len(self._shares[actor].tickets) == load:
                return free
            self._listed.discard(heapq.heappop(self._free))
        return None
