"""The actors of a pool and their health: starts, probes, restarts.

No restarted actor may work before the `on_restart` hook has run, and no wait here is without a bound.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, ItemsView, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayError

from actors.calls import whereabouts
from actors.pool_manager import Manager, one_line
from actors.pool_restarts import STEADY_SECONDS, pause_before_start

_log = logging.getLogger(__name__)
HEARTBEAT_SECONDS = 30.0
"""An idle actor is asked so often whether it lives. One that works is not: its item has a time-out."""
HEARTBEAT_TIMEOUT = 60.0


@dataclass
class Member:
    """One place in the pool and the actor in it. `ping` is under way until the actor is known to be ready.

    Times are in seconds of the monotonic clock. `early_losses`: of this place in a row, each soon after a start.
    """

    index: int
    ping: Any = None
    deadline: float = 0.0  # of the ping
    is_new: bool = True  # the ping is its first; otherwise it is a probe
    needs_hook: bool = False
    failed_starts: int = 0
    early_losses: int = 0
    starts_at: float = 0.0  # while no actor is in the place
    ready_since: float | None = None
    where: Any = None  # the call that tells node and process
    heartbeat: Any = None
    heartbeat_at: float = 0.0  # of the next one, or when the one under way must be answered

    @property
    def is_ready(self) -> bool:
        """Whether the actor may be given work."""
        return self.ping is None


class LossHook(Protocol):
    """Hears of each lost actor, before another starts. `died`: rather than being silent."""

    def __call__(self, actor: int, reason: str, *, died: bool) -> None: ...


class Members:
    """`size` actors made by `factory(index)`; a dead or silent one is replaced by another in its place.

    A new actor has `start_timeout` seconds to answer its first ping, and `probe_timeout` seconds for a later probe. A
    place whose actor failed to start `max_failed_starts` times in a row is given up. A place whose actors are lost soon
    after their start waits before the next (`actors.pool_restarts`). `on_restart` prepares a restarted actor and must
    bound its own waits. If it raises a RayError, the actor counts as lost. Any other exception is no fault of the
    actor, which waits for the hook's next call: `check` raises the exception, each time. `is_idle`: whether an actor
    has nothing to do. `clock`: the monotonic one.
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
        on_loss: LossHook,
        is_idle: Callable[[int], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._manager, self._factory = name, manager, factory
        self._start_timeout, self._probe_timeout = start_timeout, probe_timeout
        self._max_failed_starts = max_failed_starts
        self._on_restart, self._on_loss, self._is_idle, self._clock = on_restart, on_loss, is_idle, clock
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

    def places(self) -> set[int]:
        """The places that are not given up."""
        return {member.index for member in (*self._members.values(), *self._vacant)}

    def healthy(self) -> list[ActorHandle[Any]]:
        """The actors that are ready for work."""
        return [self._manager.actor(actor) for actor, member in self._members.items() if member.is_ready]

    def whereabouts(self, actor: int) -> tuple[str, int]:
        """The id of an actor's node and of its process there; empty and 0 if it has not told. Never waits."""
        where = self._members[actor].where
        if where is None or not ray.wait([where], timeout=0)[0]:
            return "", 0
        try:
            node, process = ray.get(where, timeout=self._probe_timeout)
        except RayError:
            return "", 0
        return node, process

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

    @property
    def is_complete(self) -> bool:
        """Whether every actor is ready, but for places that are given up or wait for their GPU."""
        return all(member.is_ready for member in self) and (not self._vacant or self._postpones_starts)

    def deadlines(self) -> list[float]:
        """When something is to be done about an actor, in seconds of the monotonic clock."""
        starts = [] if self._postpones_starts else [member.starts_at for member in self._vacant]
        return starts + [member.deadline for member in self if not member.is_ready]

    def hold_restarts(self, reason: str) -> None:
        """As long as there is a reason, `on_restart` is not called: a restarted actor waits for it. Empty: go on.

        Whoever gives a reason must take it back within a bound.
        """
        self._held = reason

    def describe(self) -> str:
        """What each actor that is not ready waits for, in words."""
        now = self._clock()
        waits = []
        for member in list(self._members.values()):
            if (ping := member.ping) is None:
                continue
            if member.needs_hook and self._held and ray.wait([ping], timeout=0)[0]:
                waits.append(f"actor {member.index} waits because {self._held}")
            else:
                state = "starts" if member.is_new else "is asked whether it lives"
                waits.append(f"actor {member.index} {state} and has {max(member.deadline - now, 0.0):.0f} s left")
        for member in list(self._vacant):
            lost = f"in {max(member.starts_at - now, 0.0):.0f} s, after {member.early_losses} early losses"
            waits.append(f"actor {member.index} starts {'when its GPU is free' if self._postpones_starts else lost}")
        return "; ".join(waits) or "all actors are ready"

    def postpone_starts(self, postponed: bool) -> None:
        """While postponed, no actor is started in the place of a lost actor."""
        self._postpones_starts = postponed
        self._start_due(self._clock())

    def probe(self, actor: int) -> None:
        """Takes an actor out of service until it answers."""
        self._ping(actor, self._probe_timeout, is_new=False)

    def check(self, now: float) -> None:
        """Takes actors that answer into service, and replaces those that do not. Raises what `on_restart` raises."""
        self._start_due(now)
        for actor, member in list(self._members.items()):
            if member.ping is None:
                self._listen(actor, member, now)
            elif ray.wait([member.ping], timeout=0)[0]:
                self._welcome(actor, member)
            elif now > member.deadline:
                self.replace(actor, "silent", start_failed=member.is_new)

    def replace(self, actor: int, reason: str, *, start_failed: bool = False, died: bool = False) -> None:
        """Kills an actor and starts another in its place, or gives the place up."""
        member, now = self._members[actor], self._clock()
        failed_starts = member.failed_starts + 1 if start_failed else 0
        was_early = member.ready_since is None or now - member.ready_since < STEADY_SECONDS
        early_losses = member.early_losses + 1 if was_early else 0
        given_up, pause = failed_starts >= self._max_failed_starts, pause_before_start(early_losses)
        then = f"starting another{f' in {pause:.1f} s' if pause else ''}"
        then = f"given up after {failed_starts} failed starts" if given_up else then
        _log.warning("pool %s: actor %d is lost (%s); %s", self._name, member.index, reason, then)
        self._on_loss(actor, reason, died=died)
        del self._members[actor]
        self._last_loss = reason
        ray.kill(self._manager.remove_actor(actor))
        if given_up:
            return
        self.restarts += 1
        self._vacant.append(
            Member(
                member.index,
                needs_hook=True,
                failed_starts=failed_starts,
                early_losses=early_losses,
                starts_at=now + pause,
            )
        )
        self._start_due(now)

    def clear(self) -> None:
        """Forgets all actors."""
        self._members.clear()
        self._vacant.clear()

    def _start_due(self, now: float) -> None:
        """Starts the actors whose time has come."""
        for member in [] if self._postpones_starts else [each for each in self._vacant if each.starts_at <= now]:
            self._vacant.remove(member)
            self._start(member)

    def _start(self, member: Member) -> None:
        """Starts an actor in a place of the pool."""
        handle = self._factory(member.index)
        actor = self._manager.add(handle)
        self._members[actor] = member
        self._ping(actor, self._start_timeout, is_new=True)
        member.where = handle.__ray_call__.remote(whereabouts)

    def _ping(self, actor: int, timeout: float, *, is_new: bool) -> None:
        member = self._members[actor]
        member.ping = self._manager.actor(actor).ping.remote()
        member.deadline = self._clock() + timeout
        member.is_new = is_new

    def _listen(self, actor: int, member: Member, now: float) -> None:
        """Asks an actor from time to time whether it lives, while it has nothing to do, and replaces a dead one."""
        if member.heartbeat is None:
            if now >= member.heartbeat_at and self._is_idle(actor):
                member.heartbeat = self._manager.actor(actor).ping.remote()
                member.heartbeat_at = now + HEARTBEAT_TIMEOUT
        elif ray.wait([member.heartbeat], timeout=0)[0]:
            try:
                ray.get(member.heartbeat, timeout=self._probe_timeout)
                member.heartbeat, member.heartbeat_at = None, now + HEARTBEAT_SECONDS
            except RayError as error:
                self.replace(actor, one_line(error), died=True)
        elif now > member.heartbeat_at and self._is_idle(actor):
            self.replace(actor, "silent")

    def _welcome(self, actor: int, member: Member) -> None:
        """Takes an actor into service whose ping has ended, or replaces it."""
        try:
            ray.get(member.ping, timeout=self._probe_timeout)
            if member.needs_hook and self._held:
                return
            if member.needs_hook and self._on_restart is not None:
                self._on_restart(self._manager.actor(actor))
        except RayError as error:  # it is dead, or did not take what the hook gave it
            died = not isinstance(error, GetTimeoutError)
            self.replace(actor, one_line(error), start_failed=member.is_new, died=died)
        else:
            self._manager.set_actor_state(actor, healthy=True)
            member.ping, member.needs_hook, member.failed_starts = None, False, 0
            member.ready_since = member.ready_since or self._clock()
            member.heartbeat_at = self._clock() + HEARTBEAT_SECONDS
