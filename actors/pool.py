"""Pools of identical actors that outlive any of their members, on top of RLlib's FaultTolerantActorManager.

Every item that is submitted comes back exactly once, as a result or as a PoolFailure. No call here may wait without a
bound, and no actor that came back may work before its `on_restart` hook has run.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from actors.calls import Call, Raised
from actors.pool_manager import Manager, one_line

_log = logging.getLogger(__name__)
_POLL_SECONDS = 1.0


class PoolExhausted(RuntimeError):
    """No actor of a pool could be kept alive."""


@dataclass(frozen=True)
class PoolFailure:
    """An item that came to nothing: what its method raised, or why it could not be run to its end."""

    item: Any
    error: Exception


@dataclass
class _Work:
    item: Any
    method: str
    priority: int = 0
    failures: int = 0
    actor: int | None = None
    deadline: float = 0.0


@dataclass
class _Member:
    """One place in the pool and the actor in it. `ping` is under way until the actor is known to be ready."""

    index: int
    ping: Any = None
    deadline: float = 0.0
    is_new: bool = True  # starting, rather than being asked whether it still lives
    needs_hook: bool = False
    failed_starts: int = 0
    work: set[int] = field(default_factory=set)

    @property
    def is_ready(self) -> bool:
        return self.ping is None


class ActorPool:
    """`size` actors made by `factory(index)`, each with `ping` and `apply` (RLlib's FaultAwareApply).

    An item whose actor dies, is unavailable or takes longer than `timeout` seconds is given to another one, up to
    `max_retries` times; what the method itself raises is not retried. A dead actor is replaced by a new one from
    `factory`, which has `start_timeout` seconds to answer; `on_restart(handle)` then prepares it (weights) and must
    bound its own waits. An actor that is silent for `probe_timeout` seconds after a time-out counts as dead.
    """

    def __init__(
        self,
        name: str,
        factory: Callable[[int], ActorHandle[Any]],
        size: int,
        *,
        max_in_flight: int = 1,
        timeout: float = 300.0,
        max_retries: int = 2,
        start_timeout: float = 600.0,
        probe_timeout: float = 10.0,
        max_failed_starts: int = 3,
        on_restart: Callable[[ActorHandle[Any]], Any] | None = None,
    ) -> None:
        self.name = name
        self._factory = factory
        self._max_in_flight = max_in_flight
        self._timeout, self._start_timeout, self._probe_timeout = timeout, start_timeout, probe_timeout
        self._max_retries, self._max_failed_starts = max_retries, max_failed_starts
        self._on_restart = on_restart
        self._manager = Manager(max_remote_requests_in_flight_per_actor=1)  # a tag is one call
        self._members: dict[int, _Member] = {}
        self._tickets = itertools.count()
        self._work: dict[int, _Work] = {}
        self._queue: list[tuple[int, int]] = []  # a heap of (priority, ticket)
        self._finished: list[tuple[Any, Any]] = []
        self._last_loss = ""
        self.restarts = 0
        for index in range(size):
            self._add(_Member(index))

    @property
    def pending(self) -> int:
        """Items submitted and not handed out by `poll` yet."""
        return len(self._work) + len(self._finished)

    def healthy(self) -> list[ActorHandle[Any]]:
        """The actors that are ready for work."""
        return [self._manager.actor(actor) for actor, member in self._members.items() if member.is_ready]

    def wait_ready(self, timeout: float | None = None) -> None:
        """Returns once all actors are ready. Raises PoolExhausted when none can be, TimeoutError after `timeout`
        seconds (of `start_timeout` for each start allowed, unless given)."""
        limit = timeout if timeout is not None else self._start_timeout * self._max_failed_starts
        deadline = time.monotonic() + limit
        while not all(member.is_ready for member in self._members.values()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"pool {self.name}: {self._state()} after {limit:.0f} s")
            self._wait(min(_POLL_SECONDS, max(deadline - time.monotonic(), 0.0)))
            self._tend()
        if not self._members:
            raise PoolExhausted(self._exhausted())

    @property
    def queued(self) -> int:
        """Items that no actor has been given yet."""
        return len(self._queue)

    def submit(self, item: Any, method: str, *, priority: int = 0) -> None:
        """Queues `actor.method(item)`: lower priorities first, and in the order of submission among equals.

        An ObjectRef as item is resolved on its way to the actor."""
        ticket = next(self._tickets)
        self._work[ticket] = _Work(item, method, priority)
        heapq.heappush(self._queue, (priority, ticket))
        self._dispatch()

    def poll(self, timeout: float = _POLL_SECONDS) -> list[tuple[Any, Any]]:
        """(item, result) of what has finished, in order of completion; waits up to `timeout` seconds for the first."""
        deadline = time.monotonic() + timeout
        while True:
            self._collect()
            self._tend()
            self._dispatch()
            if self._finished or not self._work or (left := deadline - time.monotonic()) <= 0:
                finished, self._finished = self._finished, []
                return finished
            self._wait(min(left, self._until_next_deadline()))

    def run(self, items: Iterable[Any], method: str) -> Iterator[tuple[Any, Any]]:
        """(item, result) of every item in order of completion; `items` is read as room becomes free.

        Raises RuntimeError while items that were submitted before are still pending: their results would be mixed in.
        """
        if self.pending:
            raise RuntimeError(f"pool {self.name}: {self.pending} items are pending; poll them before calling run")
        source = iter(items)
        while True:
            room = 2 * self._max_in_flight * max(len(self._members), 1) - self.pending
            for item in itertools.islice(source, max(room, 0)):
                self.submit(item, method)
            if not self.pending:
                return
            yield from self.poll()

    def broadcast(self, method: str, *arguments: Any, timeout: float) -> list[Any]:
        """Calls `method` on all ready actors and returns the results of those that answered within `timeout` seconds.

        Dead and silent ones are restarted, and so are those where the method raised: all of a pool's actors must be in
        the same state. They, and those still starting, get it from `on_restart`.
        """
        ready = [actor for actor, member in self._members.items() if member.is_ready]
        for member in self._members.values():
            member.needs_hook = member.needs_hook or not member.is_ready
        replies = self._manager.call_each(ready, Call(method), arguments, timeout) if ready else {}
        results = []
        for actor in ready:
            reply = replies.get(actor, TimeoutError(f"no answer within {timeout:.0f} s"))
            error = reply.error if isinstance(reply, Raised) else reply
            if isinstance(error, Exception):
                self._replace(actor, f"{method}: {one_line(error)}")
            else:
                results.append(reply)
        return results

    def stop(self) -> None:
        """Kills all actors and forgets all work."""
        self._manager.clear()
        for mapping in (self._members, self._work, self._queue, self._finished):
            mapping.clear()

    def _add(self, member: _Member) -> None:
        """Starts an actor in a place of the pool."""
        actor = self._manager.add(self._factory(member.index))
        self._members[actor] = member
        self._probe(actor, self._start_timeout, is_new=True)

    def _probe(self, actor: int, timeout: float, *, is_new: bool = False) -> None:
        """Takes an actor out of service until it answers."""
        member = self._members[actor]
        member.ping = self._manager.actor(actor).ping.remote()
        member.deadline = time.monotonic() + timeout
        member.is_new = is_new

    def _replace(self, actor: int, reason: str, *, start_failed: bool = False) -> None:
        """Kills an actor, retries its work elsewhere and starts another in its place, or gives the place up."""
        member = self._members.pop(actor)
        self._last_loss = reason
        ray.kill(self._manager.remove_actor(actor))
        member.failed_starts = member.failed_starts + 1 if start_failed else 0
        given_up = member.failed_starts >= self._max_failed_starts
        then = f"given up after {member.failed_starts} failed starts" if given_up else "starting another"
        _log.warning("pool %s: actor %d is lost (%s); %s", self.name, member.index, reason, then)
        for ticket in list(member.work):
            self._retry(ticket, reason, member)
        if not given_up:
            self.restarts += 1
            member.needs_hook = True
            self._add(member)

    def _tend(self) -> None:
        """Takes actors that answer into service, and replaces those that do not."""
        now = time.monotonic()
        for actor, member in list(self._members.items()):
            if member.ping is None:
                continue
            if ray.wait([member.ping], timeout=0)[0]:
                try:
                    ray.get(member.ping, timeout=self._probe_timeout)
                    if member.needs_hook and self._on_restart is not None:
                        self._on_restart(self._manager.actor(actor))
                except Exception as error:  # noqa: BLE001 - a dead actor or a hook that failed: neither can serve
                    self._replace(actor, one_line(error), start_failed=member.is_new)
                else:
                    self._manager.set_actor_state(actor, healthy=True)
                    member.ping, member.needs_hook, member.failed_starts = None, False, 0
            elif now > member.deadline:
                self._replace(actor, "silent", start_failed=member.is_new)
        for ticket, work in list(self._work.items()):
            if work.actor is not None and now > work.deadline:
                self._time_out(ticket, work)
        if not self._members:
            for ticket in list(self._work):
                self._finish(ticket, PoolFailure(self._work[ticket].item, PoolExhausted(self._exhausted())))

    def _time_out(self, ticket: int, work: _Work) -> None:
        actor = work.actor
        assert actor is not None
        self._manager.forget(str(ticket))
        reason = f"{work.method} took longer than {self._timeout:.0f} s"
        self._retry(ticket, reason, self._members[actor])
        if self._members[actor].is_ready:
            self._probe(actor, self._probe_timeout)

    def _dispatch(self) -> None:
        """Gives queued work to the least loaded actors that have room."""
        while self._queue:
            room = [
                (len(member.work), member.index, actor)
                for actor, member in self._members.items()
                if member.is_ready and len(member.work) < self._max_in_flight
            ]
            if not room:
                return
            actor = min(room)[2]
            _, ticket = heapq.heappop(self._queue)
            work = self._work[ticket]
            self._members[actor].work.add(ticket)
            work.actor, work.deadline = actor, time.monotonic() + self._timeout
            self._manager.call(actor, str(ticket), Call(work.method), work.item)

    def _collect(self) -> None:
        """Takes in the results that have arrived, and the deaths that came instead."""
        for actor, tag, reply in self._manager.ready():
            ticket = int(tag)
            work = self._work.get(ticket)
            if work is None or work.actor != actor:
                continue
            if isinstance(reply, RayError):
                self._retry(ticket, one_line(reply), self._members[actor])
            else:
                self._members[actor].work.discard(ticket)
                self._finish(ticket, PoolFailure(work.item, reply.error) if isinstance(reply, Raised) else reply)
        for actor in self._manager.unhealthy():
            member = self._members[actor]
            for ticket in list(member.work):
                self._retry(ticket, "its actor became unavailable", member)
            if member.is_ready:  # dead, or out of reach for a while: its answer tells
                member.needs_hook = True
                self._probe(actor, self._probe_timeout)

    def _retry(self, ticket: int, reason: str, member: _Member) -> None:
        """Puts work whose actor failed it back where it was in the queue, or gives it up."""
        member.work.discard(ticket)
        work = self._work[ticket]
        work.failures += 1
        work.actor = None
        if work.failures > self._max_retries:
            _log.error("pool %s: %s given up after %d attempts: %s", self.name, work.method, work.failures, reason)
            error = RuntimeError(f"pool {self.name}: {work.method} failed {work.failures} times, the last: {reason}")
            self._finish(ticket, PoolFailure(work.item, error))
            return
        _log.warning("pool %s: %s is tried again elsewhere: %s", self.name, work.method, reason)
        heapq.heappush(self._queue, (work.priority, ticket))

    def _finish(self, ticket: int, result: Any) -> None:
        work = self._work.pop(ticket)
        if work.actor is None and (work.priority, ticket) in self._queue:
            self._queue.remove((work.priority, ticket))
            heapq.heapify(self._queue)
        self._finished.append((work.item, result))

    def _wait(self, timeout: float) -> None:
        """Sleeps until any call or ping answers, at most `timeout` seconds."""
        self._manager.wait([member.ping for member in self._members.values() if member.ping is not None], timeout)

    def _until_next_deadline(self) -> float:
        deadlines = [work.deadline for work in self._work.values() if work.actor is not None]
        deadlines += [member.deadline for member in self._members.values() if not member.is_ready]
        return max(min(deadlines, default=time.monotonic() + _POLL_SECONDS) - time.monotonic(), 0.0) + 0.01

    def _exhausted(self) -> str:
        return f"pool {self.name}: no actor could be started; the last one: {self._last_loss}"

    def _state(self) -> str:
        return f"{len(self.healthy())} of {len(self._members)} actors are ready"
