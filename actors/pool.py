"""Pools of identical actors that outlive any of their members, on top of RLlib's FaultTolerantActorManager.

Every item that is submitted comes back exactly once, as a result or as a PoolFailure. No call here may wait without a
bound, and no actor that came back may work before its `on_restart` hook has run.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from actors.calls import Call, Raised
from actors.pool_manager import Manager, one_line
from actors.pool_records import Broadcast, Member, PoolExhausted, PoolFailure, Work

_log = logging.getLogger(__name__)
_POLL_SECONDS = 1.0
_DETOUR = 16  # items more than the least loaded actor has, that one with affinity may have and still be next


class ActorPool:
    """`size` actors made by `factory(index)`, each with `ping` and `apply` (RLlib's FaultAwareApply).

    An item whose actor dies, is unavailable or takes longer than `timeout` seconds is given to another one, up to
    `max_retries` times; what the method itself raises is not retried. A dead actor is replaced by a new one from
    `factory`, which has `start_timeout` seconds to answer; `on_restart(handle)` then prepares it (weights) and must
    bound its own waits. An actor that is silent for `probe_timeout` seconds after a time-out counts as dead.
    `affinity(item)`, where it is not None: items with the same one rather go to the same actor.
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
        affinity: Callable[[Any], Hashable] = lambda _: None,
    ) -> None:
        self.name = name
        self._factory = factory
        self._max_in_flight = max_in_flight
        self._timeout, self._start_timeout, self._probe_timeout = timeout, start_timeout, probe_timeout
        self._max_retries, self._max_failed_starts = max_retries, max_failed_starts
        self._on_restart, self._affinity = on_restart, affinity
        self._manager = Manager(max_remote_requests_in_flight_per_actor=1)  # a tag is one call
        self._members: dict[int, Member] = {}
        self._tickets = itertools.count()
        self._work: dict[int, Work] = {}
        self._queue: list[tuple[int, int]] = []  # a heap of (priority, ticket)
        self._finished: list[tuple[Any, Any]] = []
        self._broadcasts: dict[str, Broadcast] = {}
        self._last_loss = ""
        self._busy_seconds = 0.0
        self._paused = self._holds_restarts = self._postpones_starts = False
        self._vacant: list[Member] = []  # places whose next actor is to start later
        self.restarts = 0
        for index in range(size):
            self._add(Member(index))

    @property
    def pending(self) -> int:
        """Items submitted and not handed out by `poll` yet."""
        return len(self._work) + len(self._finished)

    @property
    def busy_seconds(self) -> float:
        """Seconds that each actor has had work for, up to now, summed over the actors."""
        now = time.monotonic()
        return self._busy_seconds + sum(now - member.busy_since for member in self._members.values() if member.work)

    @property
    def size(self) -> int:
        """Actors in the pool, those that are starting included."""
        return len(self._members)

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
        self._work[ticket] = Work(item, method, priority, affinity=self._affinity(item))
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

    def withdraw(self, unwanted: Callable[[Any], bool], *, queued_only: bool = False) -> list[Any]:
        """Takes back the items that are `unwanted` and gives them; of those that run, too (an asynchronous method is
        cancelled), unless `queued_only`."""
        taken = []
        for ticket, work in list(self._work.items()):
            if not unwanted(work.item) or (queued_only and work.actor is not None):
                continue
            if work.actor is not None:
                self._manager.forget(str(ticket))
                self._release(self._members[work.actor], ticket)
            taken.append(work.item)
            self._forget(ticket)
        return taken

    def begin_broadcast(self, method: str, *arguments: Any, timeout: float) -> Broadcast:
        """Calls `method` on all ready actors, ahead of all that they are given later; `poll` takes the answers in.

        Dead actors, those that are silent for `timeout` seconds and those where the method raised are restarted: all of
        a pool's actors must be in the same state. They, and those still starting, get it from `on_restart`.
        """
        ready = {actor for actor, member in self._members.items() if member.is_ready}
        for member in self._members.values():
            member.needs_hook = member.needs_hook or not member.is_ready
        broadcast = Broadcast(method, time.monotonic() + timeout, ready)
        name = f"broadcast-{next(self._tickets)}"
        self._broadcasts[name] = broadcast
        for actor in ready:
            self._manager.call(actor, f"{name}-{actor}", Call(method), *arguments)
        return broadcast

    def broadcast(self, method: str, *arguments: Any, timeout: float) -> list[Any]:
        """The results of a broadcast, of those that answered within `timeout` seconds (see `begin_broadcast`)."""
        begun = self.begin_broadcast(method, *arguments, timeout=timeout)
        while not begun.done:
            self._wait(min(_POLL_SECONDS, self._until_next_deadline()))
            self._collect()
            self._tend()
        return begun.results

    def calls(self) -> list[ray.ObjectRef[Any]]:
        """What the pool waits for."""
        waiting = [one for one in self._members.values() if not (one.needs_hook and self._holds_restarts)]
        return [*self._manager.calls(), *(member.ping for member in waiting if member.ping is not None)]

    def pause(self) -> None:
        """Gives the actors no further work until `resume`; what runs goes on, what is submitted waits."""
        self._paused = True

    def resume(self) -> None:
        """Ends a pause."""
        self._paused = False

    def hold_restarts(self, held: bool) -> None:
        """While held, no actor that has to be prepared by `on_restart` is: it waits, however long."""
        self._holds_restarts = held

    def postpone_starts(self, postponed: bool) -> None:
        """While postponed, no actor is started in the place of one that is lost."""
        self._postpones_starts = postponed
        while self._vacant and not postponed:
            self._add(self._vacant.pop())

    @property
    def is_busy(self) -> bool:
        """Whether an actor has work."""
        return any(member.work for member in self._members.values())

    def stop(self) -> None:
        """Kills all actors and forgets all work."""
        self._manager.clear()
        for held in (self._members, self._vacant, self._work, self._queue, self._finished, self._broadcasts):
            held.clear()

    def _add(self, member: Member) -> None:
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
        for broadcast in self._broadcasts.values():
            broadcast.missing.discard(actor)  # the one in its place gets it from `on_restart`
        if not given_up:
            self.restarts += 1
            member.needs_hook = True
            if self._postpones_starts:
                self._vacant.append(Member(member.index, needs_hook=True, failed_starts=member.failed_starts))
            else:
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
                    if member.needs_hook and self._holds_restarts:
                        continue
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
        for name, broadcast in list(self._broadcasts.items()):
            for actor in list(broadcast.missing) if now > broadcast.deadline else ():
                self._replace(actor, f"{broadcast.method}: no answer in time")
            if broadcast.done:
                del self._broadcasts[name]
        if not self._members and not self._vacant:
            for ticket in list(self._work):
                self._finish(ticket, PoolFailure(self._work[ticket].item, PoolExhausted(self._exhausted())))

    def _time_out(self, ticket: int, work: Work) -> None:
        actor = work.actor
        assert actor is not None
        self._manager.forget(str(ticket))
        reason = f"{work.method} took longer than {self._timeout:.0f} s"
        self._retry(ticket, reason, self._members[actor])
        if self._members[actor].is_ready:
            self._probe(actor, self._probe_timeout)

    def _dispatch(self) -> None:
        """Gives queued work to the least loaded actors that have room, or to those with affinity."""
        while self._queue and not self._paused:
            affinity = self._work[self._queue[0][1]].affinity
            room = [
                (len(member.work) - (_DETOUR if affinity in member.affinities else 0), member.index, actor)
                for actor, member in self._members.items()
                if member.is_ready and len(member.work) < self._max_in_flight
            ]
            if not room:
                return
            actor = min(room)[2]
            _, ticket = heapq.heappop(self._queue)
            work = self._work[ticket]
            member = self._members[actor]
            member.busy_since = member.busy_since if member.work else time.monotonic()
            member.work.add(ticket)
            if affinity is not None:
                member.affinities[affinity] += 1
            work.actor, work.deadline = actor, time.monotonic() + self._timeout
            self._manager.call(actor, str(ticket), Call(work.method), work.item)

    def _collect(self) -> None:
        """Takes in the results that have arrived, and the deaths that came instead."""
        for actor, tag, reply in self._manager.ready():
            if not tag.isdecimal():
                self._answered(tag.rpartition("-")[0], actor, reply)
                continue
            ticket = int(tag)
            work = self._work.get(ticket)
            if work is None or work.actor != actor:
                continue
            if isinstance(reply, RayError):
                self._retry(ticket, one_line(reply), self._members[actor])
            else:
                self._release(self._members[actor], ticket)
                self._finish(ticket, PoolFailure(work.item, reply.error) if isinstance(reply, Raised) else reply)
        for actor in self._manager.unhealthy():
            member = self._members[actor]
            for ticket in list(member.work):
                self._retry(ticket, "its actor became unavailable", member)
            if member.is_ready:  # dead, or out of reach for a while: its answer tells
                member.needs_hook = True
                self._probe(actor, self._probe_timeout)

    def _answered(self, name: str, actor: int, reply: Any) -> None:
        """An actor's answer to a broadcast."""
        broadcast = self._broadcasts.get(name)
        if broadcast is None or actor not in broadcast.missing:
            return
        error = reply.error if isinstance(reply, Raised) else reply
        if isinstance(error, Exception):
            self._replace(actor, f"{broadcast.method}: {one_line(error)}")
        else:
            broadcast.missing.discard(actor)
            broadcast.results.append(reply)

    def _release(self, member: Member, ticket: int) -> None:
        """Work that an actor no longer has."""
        if ticket in member.work:
            member.work.discard(ticket)
            affinity = self._work[ticket].affinity
            if affinity is not None and member.affinities[affinity] > 1:
                member.affinities[affinity] -= 1
            else:
                member.affinities.pop(affinity, None)
            self._busy_seconds += 0.0 if member.work else time.monotonic() - member.busy_since

    def _retry(self, ticket: int, reason: str, member: Member) -> None:
        """Puts work whose actor failed it back where it was in the queue, or gives it up."""
        self._release(member, ticket)
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
        self._finished.append((self._work[ticket].item, result))
        self._forget(ticket)

    def _forget(self, ticket: int) -> None:
        """Work that is no longer the pool's."""
        work = self._work.pop(ticket)
        if work.actor is None and (work.priority, ticket) in self._queue:
            self._queue.remove((work.priority, ticket))
            heapq.heapify(self._queue)

    def _wait(self, timeout: float) -> None:
        """Sleeps until any call or ping answers, at most `timeout` seconds."""
        wait_any([self], timeout)

    def _until_next_deadline(self) -> float:
        deadlines = [work.deadline for work in self._work.values() if work.actor is not None]
        deadlines += [member.deadline for member in self._members.values() if not member.is_ready]
        deadlines += [broadcast.deadline for broadcast in self._broadcasts.values()]
        return max(min(deadlines, default=time.monotonic() + _POLL_SECONDS) - time.monotonic(), 0.0) + 0.01

    def _exhausted(self) -> str:
        return f"pool {self.name}: no actor could be started; the last one: {self._last_loss}"

    def _state(self) -> str:
        return f"{len(self.healthy())} of {len(self._members)} actors are ready"


def wait_any(pools: Iterable[ActorPool], timeout: float) -> None:
    """Returns when anything that the pools wait for is answered, or after `timeout` seconds."""
    calls = list(itertools.chain.from_iterable(pool.calls() for pool in pools))
    if calls:
        ray.wait(calls, num_returns=1, timeout=timeout, fetch_local=False)
    else:
        time.sleep(timeout)
