"""The actors of a pool and their health: starts, probes, restarts.

No restarted actor may work before the `on_restart` hook has run, and no wait here is without a bound.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, ItemsView, Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from actors.pool_manager import Manager, one_line

_log = logging.getLogger(__name__)


@dataclass
class Member:
    """One place in the pool and the actor in it. `ping` is under way until the actor is known to be ready."""

    index: int
    ping: Any = None
    deadline: float = 0.0  # of the ping, in seconds of the monotonic clock
    is_new: bool = True  # the ping is its first; otherwise it is a probe
    needs_hook: bool = False
    failed_starts: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether the actor may be given work."""
        return self.ping is None


class Members:
    """`size` actors made by `factory(index)`; a dead or silent one is replaced by another in its place.

    A new actor has `start_timeout` seconds to answer its first ping, and `probe_timeout` seconds for a later probe. A
    place whose actor failed to start `max_failed_starts` times in a row is given up. `on_restart` prepares a restarted
    actor and must bound its own waits. If it raises a RayError, the actor counts as lost. Any other exception is no
    fault of the actor, which waits for the hook's next call: `check` raises the exception, each time. `on_loss(actor,
    reason)` is called for each lost actor, before another starts.
    """

    def __init__(
        self,
        name: str,
        manager: Manager,
        factory: Callable[[int], ActorHandle[Any]],
        size: int,
        *,
        start_timeout: float,
        probe_timeout: float,
        max_failed_starts: int,
        on_restart: Callable[[ActorHandle[Any]], Any] | None,
        on_loss: Callable[[int, str], None],
    ) -> None:
        self._name, self._manager, self._factory = name, manager, factory
        self._start_timeout, self._probe_timeout = start_timeout, probe_timeout
        self._max_failed_starts = max_failed_starts
        self._on_restart, self._on_loss = on_restart, on_loss
        self._members: dict[int, Member] = {}
        self._vacant: list[Member] = []  # places whose next actor is to start later
        self._postpones_starts = False
        self._held = ""  # why `on_restart` is not called now
        self._last_loss = ""
        self.restarts = 0
        for index in range(size):
            self._start(Member(index))

    def __len__(self) -> int:
        """Actors, those that are starting included."""
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __getitem__(self, actor: int) -> Member:
        return self._members[actor]

    def items(self) -> ItemsView[int, Member]:
        """The members by the number of their actor."""
        return self._members.items()

    def healthy(self) -> list[ActorHandle[Any]]:
        """The actors that are ready for work."""
        return [self._manager.actor(actor) for actor, member in self._members.items() if member.is_ready]

    def pings(self) -> list[Any]:
        """The pings whose answers change anything."""
        waiting = [member for member in self._members.values() if not (member.needs_hook and self._held)]
        return [member.ping for member in waiting if member.ping is not None]

    @property
    def is_exhausted(self) -> bool:
        """Whether no actor is left, and none will start."""
        return not self._members and not self._vacant

    @property
    def exhaustion(self) -> str:
        """Why no actor is left."""
        return f"pool {self._name}: no actor could be started; the last one: {self._last_loss}"

    def hold_restarts(self, reason: str) -> None:
        """As long as there is a reason, `on_restart` is not called: a restarted actor waits for it. Empty: go on.

        Whoever gives a reason must take it back within a bound.
        """
        self._held = reason

    def describe(self) -> str:
        """What each actor that is not ready waits for, in words."""
        now = time.monotonic()
        waits = []
        for member in self._members.values():
            if member.ping is None:
                continue
            if member.needs_hook and self._held and ray.wait([member.ping], timeout=0)[0]:
                waits.append(f"actor {member.index} waits because {self._held}")
            else:
                state = "starts" if member.is_new else "is asked whether it lives"
                waits.append(f"actor {member.index} {state} and has {max(member.deadline - now, 0.0):.0f} s left")
        waits += [f"actor {member.index} starts when its GPU is free" for member in self._vacant]
        return "; ".join(waits) or "all actors are ready"

    def postpone_starts(self, postponed: bool) -> None:
        """While postponed, no actor is started in the place of a lost actor."""
        self._postpones_starts = postponed
        while self._vacant and not postponed:
            self._start(self._vacant.pop())

    def probe(self, actor: int) -> None:
        """Takes an actor out of service until it answers."""
        self._ping(actor, self._probe_timeout, is_new=False)

    def check(self, now: float) -> None:
        """Takes actors that answer into service, and replaces those that do not. Raises what `on_restart` raises."""
        for actor, member in list(self._members.items()):
            if member.ping is None:
                continue
            if ray.wait([member.ping], timeout=0)[0]:
                self._welcome(actor, member)
            elif now > member.deadline:
                self.replace(actor, "silent", start_failed=member.is_new)

    def replace(self, actor: int, reason: str, *, start_failed: bool = False) -> None:
        """Kills an actor and starts another in its place, or gives the place up."""
        member = self._members.pop(actor)
        self._last_loss = reason
        ray.kill(self._manager.remove_actor(actor))
        member.failed_starts = member.failed_starts + 1 if start_failed else 0
        given_up = member.failed_starts >= self._max_failed_starts
        then = f"given up after {member.failed_starts} failed starts" if given_up else "starting another"
        _log.warning("pool %s: actor %d is lost (%s); %s", self._name, member.index, reason, then)
        self._on_loss(actor, reason)
        if given_up:
            return
        self.restarts += 1
        successor = Member(member.index, needs_hook=True, failed_starts=member.failed_starts)
        if self._postpones_starts:
            self._vacant.append(successor)
        else:
            self._start(successor)

    def clear(self) -> None:
        """Forgets all actors."""
        self._members.clear()
        self._vacant.clear()

    def _start(self, member: Member) -> None:
        """Starts an actor in a place of the pool."""
        actor = self._manager.add(self._factory(member.index))
        self._members[actor] = member
        self._ping(actor, self._start_timeout, is_new=True)

    def _ping(self, actor: int, timeout: float, *, is_new: bool) -> None:
        member = self._members[actor]
        member.ping = self._manager.actor(actor).ping.remote()
        member.deadline = time.monotonic() + timeout
        member.is_new = is_new

    def _welcome(self, actor: int, member: Member) -> None:
        """Takes an actor into service whose ping has ended, or replaces it."""
        try:
            ray.get(member.ping, timeout=self._probe_timeout)
            if member.needs_hook and self._held:
                return
            if member.needs_hook and self._on_restart is not None:
                self._on_restart(self._manager.actor(actor))
        except RayError as error:  # it is dead, or did not take what the hook gave it
            self.replace(actor, one_line(error), start_failed=member.is_new)
        else:
            self._manager.set_actor_state(actor, healthy=True)
            member.ping, member.needs_hook, member.failed_starts = None, False, 0
