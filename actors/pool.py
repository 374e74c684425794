"""Pools of identical actors that outlive any of their members, on top of RLlib's FaultTolerantActorManager.

Every item that is submitted comes back exactly once, as a result or as a PoolFailure, unless it is withdrawn. No call
here may wait without a bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any

from ray.actor import ActorHandle
from ray.exceptions import ActorUnavailableError, RayError

from actors.calls import Call, Raised, Together
from actors.pool_answers import Answers, wait_for_answers
from actors.pool_broadcasts import Broadcast, Broadcasts
from actors.pool_bundles import Bundles
from actors.pool_load import Load
from actors.pool_losses import Blame
from actors.pool_manager import Manager, one_line
from actors.pool_members import Members
from actors.pool_queue import Work, WorkQueue
from actors.pool_records import Loss, PoolExhausted, PoolFailure
from actors.pool_scaling import Scaling
from actors.pool_waits import WaitNotices
from configs.waits import STARTS

_POLL_SECONDS = 1.0
_DESCRIBED = 8  # items
AHEAD_BACKLOG = 4
"""So many items must wait for each actor that is ready, for one to be given ahead: it cannot be taken back, and might
wait for a slow one while other actors have nothing to do."""
WITNESS_SECONDS = 0.05
"""An actor that ended an item so recently is believed to live, and no ping goes before its next item."""


class ActorPool:
    """`size` actors made by `factory(index)`, each with `ping` and `apply` (`Managed`).

    An item whose actor dies, is unavailable or takes longer than `timeout` seconds is given to another actor, up to
    `max_retries` times, or a few times more if its losses are not its fault (`actors.pool_losses`); if the method
    itself raises, the item is not retried. An actor is probed after a time-out, and while it has nothing to do.
    `ahead`: items that an actor is given beyond the `max_in_flight` that it works on, so that it need not wait for the
    driver, while many wait (`AHEAD_BACKLOG`). Only for actors that work on one item at a time, in order. Their time
    begins when the actor is done with those before, and if it is lost before that they do not count it as a loss. Each
    of them may be several in one call (`actors.pool_bundles`), which have their time together; if the actor is lost
    meanwhile, that counts for none of them, and each goes to an idle actor alone.
    `affinity(item)`: items with the same affinity prefer the same actor; None: no preference. `key(item)`:
    what `withdraw_keys` finds it by. `avoid(item)`: the places whose actors are its last choice: it waits for others
    that are ready. `control_group`: the
    concurrency group of the actors that broadcasts run in, so that no item takes their places. `clock`: the monotonic
    one. `idle_seconds`: if it is not 0, an actor is started when an item has none, and ends after so many seconds
    without one. For `start_timeout`, `probe_timeout`, `max_failed_starts`, `on_restart` and `shortage` see `Members`.
    """

    def __init__(
        self,
        name: str,
        factory: Callable[[int], ActorHandle[Any]],
        size: int,
        *,
        max_in_flight: int = 1,
        ahead: int = 0,
        timeout: float = 300.0,
        max_retries: int = 2,
        start_timeout: float = 600.0,
        probe_timeout: float = 10.0,
        max_failed_starts: int = STARTS,
        on_restart: Callable[[ActorHandle[Any]], Any] | None = None,
        affinity: Callable[[Any], Hashable] = lambda _: None,
        key: Callable[[Any], Hashable] = lambda item: getattr(item, "key", None),
        avoid: Callable[[Any], Collection[int]] = lambda item: getattr(item, "avoid", ()),
        control_group: str = "",
        shortage: Callable[[int], str] = lambda _: "",
        idle_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._timeout, self._affinity, self._key, self._clock = timeout, affinity, key, clock
        self._avoid = avoid
        if ahead and max_in_flight != 1:
            raise ValueError(f"pool {name}: ahead must be 0 if max_in_flight is not 1, got {ahead}")
        self._is_exclusive = max_in_flight == 1  # so an item that was under way is known
        self._ahead = ahead
        self._start_limit = start_timeout * max_failed_starts
        self._paused = False
        self._queue = WorkQueue(name, max_retries)
        self._notices = WaitNotices(name)
        self._blame = Blame()
        self._witnesses: dict[int, Any] = {}  # by ticket: a ping just before the item's call
        self._heard: dict[int, float] = {}  # when each actor last ended an item
        self._bundles = Bundles(clock)
        self.load = Load(max_in_flight, ahead)
        self._manager = Manager()
        self.members = Members(
            name,
            self._manager,
            factory,
            size,
            start_timeout=start_timeout,
            probe_timeout=probe_timeout,
            max_failed_starts=max_failed_starts,
            on_restart=on_restart,
            on_loss=self._on_loss,
            on_ready=self._on_ready,
            is_idle=self._is_idle,
            shortage=shortage,
            grows=idle_seconds > 0,
            clock=clock,
        )
        self._scaling = Scaling(idle_seconds, self.members, self._is_idle)
        self._broadcasts = Broadcasts(self._manager, self.members, control_group, clock)

    @property
    def pending(self) -> int:
        """Items submitted and not handed out by `poll` yet."""
        return self._queue.pending

    @property
    def queued(self) -> int:
        """Items that no actor has been given yet."""
        return self._queue.waiting

    @property
    def moves(self) -> int:
        """Items that ended, or lost their workers, so far. A start is no move: actors may start again without end."""
        return self._queue.moves

    def wait_ready(self, timeout: float | None = None) -> None:
        """Returns once all actors are ready.

        Raises PoolExhausted if none can be, and TimeoutError after `timeout` seconds (if not given, `start_timeout` for
        each start that is allowed).
        """
        limit = self._start_limit if timeout is None else timeout
        deadline = time.monotonic() + limit
        while not self.members.is_complete:
            if time.monotonic() > deadline:
                ready = f"{self.members.ready} of {len(self.members)} actors are ready"
                raise TimeoutError(f"pool {self.name}: {ready} after {limit:.0f} s; {self.members.describe()}")
            wait_any([self], min(_POLL_SECONDS, max(deadline - time.monotonic(), 0.0)))
            self._check()
        if self.members.is_exhausted or not (len(self.members) or self._scaling.may_be_empty):
            raise PoolExhausted(self.members.exhaustion)

    def submit(self, item: Any, method: str, *, priority: int = 0) -> None:
        """Queues `actor.method(item)`: lower priorities first, and in the order of submission among equals."""
        self._queue.submit(item, method, priority, self._affinity(item), self._key(item))
        self._dispatch()

    def poll(self, timeout: float = _POLL_SECONDS) -> list[tuple[Any, Any]]:
        """(item, result) of finished items in order of completion; waits up to `timeout` seconds for the first."""
        deadline = time.monotonic() + timeout
        while True:
            self._collect()
            self._check()
            self._dispatch()
            if self._queue.has_news or (left := deadline - time.monotonic()) <= 0:
                return self._queue.take_results()
            wait_any([self], min(left, self._until_next_deadline()))

    def describe(self) -> str:
        """Who waits for whom, and for how long, in words. It may be called from another thread."""
        now, running = self._clock(), self._queue.running()
        places = {actor: member.index for actor, member in list(self.members.items())}
        begun = [(work.given, work.deadline, work) for work in running if work.deadline is not None]
        oldest = sorted(begun, key=lambda each: each[0])[:_DESCRIBED]
        with_actors = [
            f"{work.method} is with actor {places.get(work.actor or 0, '?')} for {now - given:.0f} s and has "
            f"{max(deadline - now, 0.0):.0f} s left"
            for given, deadline, work in oldest
        ]
        more = f"{len(running) - len(oldest)} others are with actors" if len(running) > len(oldest) else ""
        paused = "it is not its turn" if self._paused else ""
        counts = f"{self.pending} item(s), of which {self.queued} wait"
        return "; ".join(filter(None, (counts, paused, *with_actors, more, self.members.describe())))

    def withdraw(self, unwanted: Callable[[Any], bool], *, queued_only: bool = False) -> list[Any]:
        """Takes back the items that are `unwanted`, and returns them.

        Items that run are taken back, too (an asynchronous method is cancelled), unless `queued_only`.
        """
        return self._take_back((work for work in self._queue.work() if unwanted(work.item)), queued_only)

    def withdraw_keys(self, keys: Collection[Hashable], *, queued_only: bool = False) -> list[Any]:
        """Likewise, the items with these keys, and looks at no others."""
        return self._take_back(self._queue.with_keys(keys), queued_only)

    def begin_broadcast(self, method: str, *arguments: Any, timeout: float) -> Broadcast:
        """Calls `method` on all ready actors; `poll` receives the answers.

        Without a `control_group`, it runs before anything that they are given later.

        An actor that dies, does not answer in `timeout` seconds, or whose method raises, is restarted.
        """
        return self._broadcasts.begin(method, *arguments, timeout=timeout)

    def broadcast(self, method: str, *arguments: Any, timeout: float) -> list[Any]:
        """Waits for a broadcast (see `begin_broadcast`); the results of the actors that answered in time."""
        broadcast = self.begin_broadcast(method, *arguments, timeout=timeout)
        while not broadcast.done:
            wait_any([self], min(_POLL_SECONDS, self._until_next_deadline()))
            self._collect()
            self._check()
        return broadcast.results

    def answers(self) -> tuple[Answers[Any], ...]:
        """Where answers that the pool waits for arrive."""
        return (self._manager.answers, self.members.answers)

    def pause(self) -> None:
        """Gives the actors no further work until `resume`: running items go on, submitted ones wait."""
        self._paused = True

    def resume(self) -> None:
        """Ends a pause."""
        self._paused = False

    def stop(self) -> None:
        """Kills all actors and forgets all work."""
        self._manager.clear()
        parts = (self.members, self.load, self._queue, self._bundles, self._broadcasts, self._witnesses, self._heard)
        for part in parts:
            part.clear()

    def _check(self) -> None:
        """Looks after actors, work and broadcasts whose time is over."""
        now = self._clock()
        self.members.check(now)
        for work in self._queue.overdue(now):
            self._time_out(work)
        self._broadcasts.check(now)
        self._queue.decide(now, lambda losses: self._blame.in_the_end(losses, self.members.places()))
        self._scaling.check(now, self._queue.outstanding, self._heard)
        can_work = self._paused or self.members.ready > 0
        self._notices.check(now, 0 if can_work else self._queue.waiting, self.members.describe)
        if self.members.is_exhausted:
            for work in self._queue.work():
                self._queue.finish(work, PoolFailure(PoolExhausted(self.members.exhaustion)))

    def _time_out(self, work: Work) -> None:
        actor = work.actor
        assert actor is not None
        self._manager.forget(work.ticket)
        self._lose(work, actor, f"{work.method} took longer than {self._timeout:.0f} s")
        if self.members[actor].is_ready:
            self.members.probe(actor)

    def _dispatch(self) -> None:
        """Gives queued work to the least loaded actors that have room, preferring those with the same affinity."""
        while self._queue.waiting and not self._paused:
            first = self._queue.first()
            # What lost an actor waits for an idle one: an answer just before a death may be lost with the process.
            has_backlog = self._queue.waiting >= AHEAD_BACKLOG * self.members.ready
            has_ahead = self._ahead > 0 and has_backlog and not first.is_doubted
            unwanted = set(self._avoid(first.item))
            avoided = unwanted | {loss.place for loss in first.losses}
            actor = self.load.least_loaded(first.affinity, avoided, has_ahead=has_ahead)
            if actor is None or (self.members[actor].index in unwanted and self.members.has_ready_beyond(unwanted)):
                return
            now = self._clock()
            waits = self._is_exclusive and self.load.first(actor) is not None
            lives = now - self._heard.get(actor, -WITNESS_SECONDS) < WITNESS_SECONDS
            work = self._queue.start_first(actor, now, None if waits else now + self._timeout)
            self.load.assign(actor, work)
            works = self._bundle(work, actor) if has_ahead and (waits or lives) else [work]
            if len(works) > 1 and not waits:
                self._queue.begin(work, now, now + self._timeout * len(works))
            if self._is_exclusive and not (waits or lives):
                self._witnesses[work.ticket] = self._manager.actor(actor).ping.remote()
            calls = tuple(Call(each.method, (each.item,)) for each in works)
            self._manager.call(actor, work.ticket, calls[0] if len(calls) == 1 else Together(calls))

    def _bundle(self, first: Work, actor: int) -> list[Work]:
        """Work that an actor is given, and what goes along with it in the same call."""
        spare = self._queue.waiting // max(self.members.ready, 1) - AHEAD_BACKLOG
        return self._bundles.gather(first, self._queue, actor, spare, lambda work: bool(self._avoid(work.item)))

    def _collect(self) -> None:
        """Receives the results that have arrived, and notices actors that became unavailable."""
        for actor, tag, reply in self._manager.ready():
            if isinstance(tag, int):
                self._receive(tag, actor, reply)
            else:
                self._broadcasts.receive(tag, actor, reply)
        for actor in self._manager.unhealthy():
            member = self.members[actor]
            if member.is_ready:  # it is dead, or out of reach for a while: its answer tells
                self._blame.died(member.index, actor, self._clock())
                member.needs_hook = True
                self.members.probe(actor)
            self._lose_all(actor, "its actor became unavailable")

    def _receive(self, ticket: int, actor: int, reply: Any) -> None:
        """Takes the answer to an item's call."""
        work = self._queue.find(ticket)
        if work is None or work.actor != actor:
            return
        if isinstance(reply, RayError):
            self._lose(work, actor, one_line(reply), reply)
            return
        self._heard[actor] = self._clock()
        self._release(work, actor)
        works = self._bundles.take(work)
        for each, result in zip(works, reply if len(works) > 1 else [reply], strict=True):
            self._queue.finish(each, PoolFailure(result.error) if isinstance(result, Raised) else result)
        self._bundles.count(len(works))

    def _on_loss(self, actor: int, reason: str, *, died: bool) -> None:
        if died:
            self._blame.died(self.members[actor].index, actor, self._clock())
        self._lose_all(actor, reason)
        self.load.drop(actor)
        self._heard.pop(actor, None)
        self._broadcasts.drop(actor)

    def _on_ready(self, actor: int, *, is_ready: bool) -> None:
        if is_ready:
            self.load.open(actor, self.members[actor].index)
        else:
            self.load.close(actor)

    def _lose_all(self, actor: int, reason: str) -> None:
        for ticket in self.load.tickets(actor):
            work = self._queue.find(ticket)
            assert work is not None, "an actor has only work that is under way"
            self._lose(work, actor, reason)

    def _lose(self, work: Work, actor: int, reason: str, error: RayError | None = None) -> None:
        """Takes work from an actor that is lost, whatever it had to do with that, and what was given ahead, which had
        nothing to do with it."""
        for ticket in self.load.tickets(actor) if self._ahead else ():
            other = self._queue.find(ticket)
            if other is not None and other.deadline is None:
                for each in self._take_call_of(other, actor):
                    self._queue.put_back(each)
        if work.actor is None:
            return  # it was given ahead itself
        if self._bundles.length(work) > 1:
            self._queue.suspect(self._take_call_of(work, actor), reason)
            return
        now, (node, process) = self._clock(), self.members.whereabouts(actor)
        excuse = self._blame.at_first(error, self._witnesses.get(work.ticket), work.losses)
        place, seconds = self.members[actor].index, now - work.given
        self._release(work, actor)
        loss = Loss(reason, place, actor, node, process, seconds, now, time.time(), excuse)
        if not self._queue.lose(work, loss, is_absent=isinstance(error, ActorUnavailableError)):
            for idle, member in list(self.members.items()):  # those that died with it, and had nothing to do
                if member.is_ready and idle != actor and self._is_idle(idle):
                    self.members.probe(idle)

    def _take_call_of(self, work: Work, actor: int) -> list[Work]:
        """Takes from an actor the call that work is in; returns all that is in it."""
        works = self._bundles.take(work)
        self._manager.forget(works[0].ticket)
        self._release(works[0], actor)
        return works

    def _release(self, work: Work, actor: int) -> None:
        """Counts work as no longer with an actor, which begins with what it was given ahead."""
        self.load.release(actor, work)
        self._witnesses.pop(work.ticket, None)
        if self._ahead and (ticket := self.load.first(actor)) is not None:
            following = self._queue.find(ticket)
            assert following is not None, "an actor has only work that is under way"
            if following.deadline is None:
                now = self._clock()
                self._queue.begin(following, now, now + self._timeout * self._bundles.length(following))

    def _take_back(self, unwanted: Iterable[Work], queued_only: bool) -> list[Any]:
        taken = []
        for work in unwanted:
            if work.actor is not None:
                if queued_only:
                    continue
                for other in self._take_call_of(work, work.actor):
                    if other is not work:
                        self._queue.put_back(other)
            taken.append(work.item)
            self._queue.remove(work)
        return taken

    def _is_idle(self, actor: int) -> bool:
        return not self.load.tickets(actor) and not self._broadcasts.awaits(actor)

    def _until_next_deadline(self) -> float:
        """Seconds until the time of the first item, ping or broadcast is over; one second if there are none."""
        deadlines = self._queue.deadlines() + self.members.deadlines() + self._broadcasts.deadlines()
        return max(min(deadlines, default=self._clock() + _POLL_SECONDS) - self._clock(), 0.0) + 0.01


def wait_any(pools: Iterable[ActorPool], timeout: float) -> None:
    """Returns as soon as a call of one of the pools is answered, or after `timeout` seconds."""
    pools = list(dict.fromkeys(pools))  # a pool may have two roles
    if not any(pool.members.has_news for pool in pools):
        wait_for_answers([place for pool in pools for place in pool.answers()], timeout)
