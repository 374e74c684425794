"""Which actor of a pool has which work, which is to have the next item, and how long they were busy.

Knows actors by number only.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field

from actors.pool_queue import Work

_DETOUR = 16  # an actor that has work of the same affinity is preferred until it has so many items more than the others


@dataclass
class _Share:
    """The work of one actor: its tickets, their affinities, and since when it has had any."""

    tickets: set[int] = field(default_factory=set)
    affinities: Counter[Hashable] = field(default_factory=Counter)
    busy_since: float = 0.0


class Load:
    """The work of all actors of a pool, each of which may have `max_in_flight` items at once."""

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self._shares: defaultdict[int, _Share] = defaultdict(_Share)
        self._busy_seconds = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether an actor has work."""
        return any(share.tickets for share in self._shares.values())

    @property
    def busy_seconds(self) -> float:
        """Seconds that each actor has had work for, up to now, summed over the actors."""
        now = time.monotonic()
        return self._busy_seconds + sum(now - share.busy_since for share in self._shares.values() if share.tickets)

    def least_loaded(
        self, actors: Iterable[tuple[int, int]], affinity: Hashable, avoided: Collection[int] = ()
    ) -> int | None:
        """The actor that is to have the next item, of actors given as (place, number); None: none has room.

        An actor that has work of the same affinity is preferred. One in an `avoided` place is the last choice.
        """
        room = []
        for place, actor in actors:
            share = self._shares[actor]
            if len(share.tickets) < self._max_in_flight:
                load = len(share.tickets) - (_DETOUR if affinity in share.affinities else 0)
                room.append((place in avoided, load, place, actor))
        return min(room)[-1] if room else None

    def assign(self, actor: int, work: Work) -> None:
        """Counts work that an actor is given."""
        share = self._shares[actor]
        if not share.tickets:
            share.busy_since = time.monotonic()
        share.tickets.add(work.ticket)
        if work.affinity is not None:
            share.affinities[work.affinity] += 1

    def release(self, actor: int, work: Work) -> None:
        """Counts work that an actor no longer has."""
        share = self._shares[actor]
        if work.ticket not in share.tickets:
            return
        share.tickets.discard(work.ticket)
        if work.affinity is not None and share.affinities[work.affinity] > 1:
            share.affinities[work.affinity] -= 1
        else:
            share.affinities.pop(work.affinity, None)
        if not share.tickets:
            self._busy_seconds += time.monotonic() - share.busy_since

    def tickets(self, actor: int) -> list[int]:
        """The work of an actor."""
        return list(self._shares[actor].tickets)

    def drop(self, actor: int) -> None:
        """Forgets an actor, which has no work any more."""
        self._shares.pop(actor, None)

    def clear(self) -> None:
        """Forgets all actors."""
        self._shares.clear()
