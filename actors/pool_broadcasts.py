"""Calls to all ready actors of a pool at once.

All actors of a pool must be in the same state, so an actor without a good answer in time is replaced. Actors that are
starting, or that replace another, get the state from the pool's `on_restart`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import RayError

from actors.calls import Call, Raised
from actors.pool_manager import Manager, one_line
from actors.pool_members import Members


@dataclass
class Broadcast:
    """One call to all ready actors. `missing`: the actors that have not answered yet."""

    method: str
    deadline: float
    missing: set[int]
    results: list[Any] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether every actor has answered, or is replaced."""
        return not self.missing


class Broadcasts:
    """The broadcasts of a pool that are under way, by name. `group`: the concurrency group that they run in."""

    def __init__(self, manager: Manager, members: Members, group: str, clock: Callable[[], float]) -> None:
        self._manager, self._members, self._group, self._clock = manager, members, group, clock
        self._numbers = itertools.count()
        self._under_way: dict[str, Broadcast] = {}

    def begin(self, method: str, *arguments: Any, timeout: float) -> Broadcast:
        """Calls `method` on all ready actors, which have `timeout` seconds to answer."""
        ready = {actor for actor, member in self._members.items() if member.is_ready}
        for member in self._members:
            member.needs_hook = member.needs_hook or not member.is_ready
        broadcast = Broadcast(method, self._clock() + timeout, ready)
        name = f"broadcast-{next(self._numbers)}"
        self._under_way[name] = broadcast
        for actor in ready:
            self._manager.call(actor, f"{name}-{actor}", Call(method), *arguments, group=self._group)
        return broadcast

    def receive(self, tag: str, actor: int, reply: Any) -> None:
        """Takes the answer to a call with this tag: a result, a `Raised`, or an error of Ray."""
        broadcast = self._under_way.get(tag.rpartition("-")[0])
        if broadcast is None or actor not in broadcast.missing:
            return
        error = reply.error if isinstance(reply, Raised) else reply
        if isinstance(error, Exception):
            died = isinstance(error, RayError)
            self._members.replace(actor, f"{broadcast.method}: {one_line(error)}", died=died)
        else:
            broadcast.missing.discard(actor)
            broadcast.results.append(reply)

    def awaits(self, actor: int) -> bool:
        """Whether an actor has to answer one of them."""
        return any(actor in broadcast.missing for broadcast in self._under_way.values())

    def drop(self, actor: int) -> None:
        """Waits no longer for an actor that is lost: its successor gets the state from `on_restart`."""
        for broadcast in self._under_way.values():
            broadcast.missing.discard(actor)

    def check(self, now: float) -> None:
        """Replaces the actors whose time to answer is over."""
        for name, broadcast in list(self._under_way.items()):
            for actor in list(broadcast.missing) if now > broadcast.deadline else ():
                self._members.replace(actor, f"{broadcast.method}: no answer in time")
            if broadcast.done:
                del self._under_way[name]

    def deadlines(self) -> list[float]:
        """When the time of each broadcast is over, in seconds of the monotonic clock."""
        return [broadcast.deadline for broadcast in self._under_way.values()]

    def clear(self) -> None:
        """Forgets all of them."""
        self._under_way.clear()
