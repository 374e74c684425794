"""The actors of a pool and their health: starts, probes, restarts.

No restarted actor may work before the `on_restart` hook has run, and no wait here is without a bound. `check` looks at
the actors that answered, or whose time has come, and at no other.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import time
from collections.abc import Callable, Collection, ItemsView, Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayError

from actors.calls import whereabouts
from actors.pool_answers import Answers
from actors.pool_manager import Manager, one_line
from actors.pool_records import LossHook, ReadyHook
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
    heartbeat: Any = None  # a later ping, while there is nothing to do
    heartbeat_note: int = -1  # the note of the next one

    @property
    def is_ready(self) -> bool:
        """Whether the actor may be given work."""
        return self.ping is None


class Members:
    """`size` actors made by `factory(index)`; a dead or silent one is replaced by another in its place.

    A new actor has `start_timeout` seconds to answer its first ping, and `probe_timeout` seconds for a later probe. A
    place whose actor failed to start `max_failed_starts` times in a row is given up. A place whose actors are lost soon
    after their start waits before the next (`actors.pool_restarts`). `on_restart` prepares a restarted actor and must
    bound its own waits. If it raises a RayError, the actor counts as lost. Any other exception is no fault of the
    actor, which waits for the hook's next call: `check` raises the exception, each time. `is_idle`: whether an actor
    has nothing to do. `shortage`: what the cluster lacks for so many actors, in words, empty if nothing. An actor that
    waits for the cluster is no failed start as long as others of the pool are ready. `grows`: none is started before
    `grow` asks for it. `clock`: the monotonic one.
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
        on_ready: ReadyHook,
        is_idle: Callable[[int], bool],
        shortage: Callable[[int], str] = lambda _: "",
        grows: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._manager, self._factory = name, manager, factory
        self._start_timeout, self._probe_timeout = start_timeout, probe_timeout
        self._max_failed_starts = max_failed_starts
        self._on_restart, self._on_loss, self._is_idle, self._clock = on_restart, on_loss, is_idle, clock
        self._on_ready, self._shortage, self._grows = on_ready, shortage, grows
        self.answers: Answers[tuple[int, Any]] = Answers()  # to pings, by actor and call
        self._answered: dict[int, Any] = {}  # the answers of actors that are not welcomed yet
        self._agenda: list[tuple[float, int, int, Any]] = []  # a heap of notes: when to look after an actor, and why
        self._numbers = itertools.count()
        self._ready: set[int] = set()
        self._members: dict[int, Member] = {}
        self._vacant: list[tuple[float, int, Member]] = []  # a heap: when to start the next actor of a place
        self._postpones_starts = False
        self._held = ""  # why `on_restart` is not called now
        self._last_loss = ""
        self.restarts = 0
        self._unused = list(range(size))  # a heap: places whose actors are not wanted now
        self._given_up: list[int] = []  # places
        if not grows:
            self.grow(size)

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
        started = {member.index for member in (*self._members.values(), *(vacant[-1] for vacant in self._vacant))}
        return started | set(self._unused)

    @property
    def started(self) -> int:
        """How many places have an actor, or get one."""
        return len(self._members) + len(self._vacant)

    def grow(self, count: int) -> None:
        """Starts up to `count` more actors, as long as there are places."""
        for _ in range(min(count, len(self._unused))):
            self._start(Member(heapq.heappop(self._unused)))

    def retire(self, actor: int, reason: str) -> None:
        """Ends an actor that has nothing to do. Its place gets another when `grow` asks for it."""
        index = self._members[actor].index
        _log.info("pool %s: actor %d ends: %s", self._name, index, reason)
        self._remove(actor, reason)
        heapq.heappush(self._unused, index)

    def unused_since(self, now: float) -> dict[int, float]:
        """Since when each actor could have worked or, if it is not ready, has been starting."""
        return {
            actor: member.ready_since or min(member.deadline - self._start_timeout, now)
            for actor, member in self._members.items()
        }

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

    @property
    def ready(self) -> int:
        """How many actors are ready for work."""
        return len(self._ready)

    def has_ready_beyond(self, places: Collection[int]) -> bool:
        """Whether an actor is ready for work in another place than these."""
        return any(self._members[actor].index not in places for actor in self._ready)

    @property
    def has_news(self) -> bool:
        """Whether `check` has something to do at once."""
        return bool(self._answered) and not self._held

    @property
    def is_exhausted(self) -> bool:
        """Whether no actor is left, and none will start. A pool that grows is at its end when all that it has started
        since one was ready were given up."""
        return not self._members and not self._vacant and not (self._unused and not self._given_up)

    @property
    def exhaustion(self) -> str:
        """Why no actor is left."""
        return f"pool {self._name}: no actor could be started; the last one: {self._last_loss}"

    @property
    def is_complete(self) -> bool:
        """Whether every actor is ready, but for places that are given up or wait for their GPU."""
        return len(self._ready) == len(self._members) and (not self._vacant or self._postpones_starts)

    def deadlines(self) -> list[float]:
        """When something is to be done about an actor, in seconds of the monotonic clock."""
        starts = [] if self._postpones_starts else [vacant[0] for vacant in self._vacant[:1]]
        return starts + [entry[0] for entry in self._agenda[:1]]

    def hold_restarts(self, reason: str) -> None:
        """As long as there is a reason, `on_restart` is not called: a restarted actor waits for it. Empty: go on.

        Whoever gives a reason must take it back within a bound.
        """
        self._held = reason

    def describe(self) -> str:
        """What each actor that is not ready waits for, in words."""
        now = self._clock()
        waits = []
        for actor, member in list(self._members.items()):
            if member.is_ready:
                continue
            if member.needs_hook and self._held and actor in self._answered:
                waits.append(f"actor {member.index} waits because {self._held}")
            else:
                state = "starts" if member.is_new else "is asked whether it lives"
                waits.append(f"actor {member.index} {state} and has {max(member.deadline - now, 0.0):.0f} s left")
        for _, _, member in sorted(self._vacant):
            lost = f"in {max(member.starts_at - now, 0.0):.0f} s, after {member.early_losses} early losses"
            waits.append(f"actor {member.index} starts {'when its GPU is free' if self._postpones_starts else lost}")
        starting = sum(member.is_new and not member.is_ready for member in list(self._members.values()))
        if starting and (lacking := self._shortage(starting)):
            waits.append(lacking)
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
        for (actor, call), answer in self.answers.take():
            self._hear(actor, call, answer, now)
        for actor, answer in list(self._answered.items()):
            self._welcome(actor, answer)
        while self._agenda and self._agenda[0][0] <= now:
            _, number, actor, call = heapq.heappop(self._agenda)
            member = self._members.get(actor)
            if member is not None and call is None and number == member.heartbeat_note:
                self._send_heartbeat(actor, member, now)
            elif member is not None and call is not None:
                self._miss(actor, member, call, now)

    def replace(self, actor: int, reason: str, *, start_failed: bool = False, died: bool = False) -> None:
        """Kills an actor and starts another in its place, or gives the place up."""
        member, now = self._members[actor], self._clock()
        failed_starts = member.failed_starts + 1 if start_failed else 0
        was_early = member.ready_since is None or now - member.ready_since < STEADY_SECONDS
        early_losses = member.early_losses + 1 if was_early else 0
        is_last = failed_starts >= self._max_failed_starts
        given_up = is_last and not (self._grows and self._ready)  # others show that actors can start
        pause = pause_before_start(early_losses)
        then = f"starting another{f' in {pause:.1f} s' if pause else ''}"
        then = f"given up after {failed_starts} failed starts" if given_up else then
        _log.warning("pool %s: actor %d is lost (%s); %s", self._name, member.index, reason, then)
        self._remove(actor, reason, died=died)
        self._last_loss = reason
        if given_up:
            self._given_up.append(member.index)
            return
        self.restarts += 1
        successor = Member(
            member.index,
            needs_hook=True,
            failed_starts=failed_starts,
            early_losses=early_losses,
            starts_at=now + pause,
        )
        heapq.heappush(self._vacant, (successor.starts_at, next(self._numbers), successor))
        self._start_due(now)

    def _remove(self, actor: int, reason: str, *, died: bool = False) -> None:
        self._on_loss(actor, reason, died=died)
        del self._members[actor]
        self._answered.pop(actor, None)
        self._ready.discard(actor)
        ray.kill(self._manager.remove_actor(actor))

    def clear(self) -> None:
        """Forgets all actors."""
        for part in (self._members, self._vacant, self._ready, self._answered, self._agenda, self.answers):
            part.clear()
        self._unused.clear()

    def _start_due(self, now: float) -> None:
        """Starts the actors whose time has come."""
        while self._vacant and self._vacant[0][0] <= now and not self._postpones_starts:
            self._start(heapq.heappop(self._vacant)[-1])

    def _start(self, member: Member) -> None:
        """Starts an actor in a place of the pool."""
        handle = self._factory(member.index)
        actor = self._manager.add(handle)
        self._members[actor] = member
        self._ping(actor, self._start_timeout, is_new=True)
        member.where = handle.__ray_call__.remote(whereabouts)

    def _ping(self, actor: int, timeout: float, *, is_new: bool) -> None:
        member = self._members[actor]
        self._ready.discard(actor)
        self._answered.pop(actor, None)
        self._on_ready(actor, is_ready=False)
        member.ping = self._ask(actor)
        member.deadline = self._clock() + timeout
        member.is_new = is_new
        self._note(member.deadline, actor, member.ping)

    def _ask(self, actor: int) -> Any:
        """A ping to an actor, whose answer `check` receives."""
        ping: Any = self._manager.actor(actor).ping.remote()
        self.answers.expect(ping, (actor, ping))
        return ping

    def _note(self, when: float, actor: int, call: Any) -> int:
        """Has `check` look then whether a call was answered, or send a heartbeat if it is None; returns the number."""
        number = next(self._numbers)
        heapq.heappush(self._agenda, (when, number, actor, call))
        return number

    def _rest(self, actor: int, member: Member, now: float) -> None:
        """Leaves an actor alone until its next heartbeat."""
        member.heartbeat = None
        member.heartbeat_note = self._note(now + HEARTBEAT_SECONDS, actor, None)

    def _hear(self, actor: int, call: Any, answer: Any, now: float) -> None:
        """Takes the answer to a ping or a heartbeat, unless it is of no interest any more."""
        member = self._members.get(actor)
        if member is None:
            return
        if call is member.ping:
            self._answered[actor] = answer
        elif call is member.heartbeat and isinstance(answer, RayError):
            if member.is_ready:  # else a ping is under way, which tells the same
                self.replace(actor, one_line(answer), died=True)
        elif call is member.heartbeat:
            self._rest(actor, member, now)

    def _send_heartbeat(self, actor: int, member: Member, now: float) -> None:
        """Asks an actor whether it lives, if it has nothing to do. If it works, its item has a time-out."""
        if member.is_ready and self._is_idle(actor):
            member.heartbeat = self._ask(actor)
            self._note(now + HEARTBEAT_TIMEOUT, actor, member.heartbeat)
        elif member.is_ready:
            self._rest(actor, member, now)

    def _miss(self, actor: int, member: Member, call: Any, now: float) -> None:
        """Replaces an actor whose time for an answer is over, if it still has not come."""
        if call is member.ping and actor not in self._answered:
            lacking = self._shortage(1) if member.is_new else ""
            if lacking and self._ready:
                member.deadline = now + self._start_timeout
                self._note(member.deadline, actor, call)
                _log.warning("pool %s: actor %d is %s", self._name, member.index, lacking)
                return
            self.replace(actor, lacking or "silent", start_failed=member.is_new)
        elif call is member.heartbeat and member.is_ready:
            if self._is_idle(actor):
                self.replace(actor, "silent")
            else:
                self._note(now + HEARTBEAT_SECONDS, actor, call)

    def _welcome(self, actor: int, answer: Any) -> None:
        """Takes an actor into service whose ping has ended, or replaces it."""
        member = self._members[actor]
        try:
            if isinstance(answer, RayError):
                raise answer
            if member.needs_hook and self._held:
                return
            if member.needs_hook and self._on_restart is not None:
                self._on_restart(self._manager.actor(actor))
        except RayError as error:  # it is dead, or did not take what the hook gave it
            died = not isinstance(error, GetTimeoutError)
            self.replace(actor, one_line(error), start_failed=member.is_new, died=died)
        else:
            self._manager.set_actor_state(actor, healthy=True)
            del self._answered[actor]
            member.ping, member.needs_hook, member.failed_starts = None, False, 0
            member.ready_since = member.ready_since or self._clock()
            self._rest(actor, member, self._clock())
            self._ready.add(actor)
            self._on_ready(actor, is_ready=True)
            if self._grows:  # there is room again, so places that were given up may be tried again
                self._unused = sorted([*self._unused, *self._given_up])
                self._given_up.clear()
