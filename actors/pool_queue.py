"""The items of a pool: those that wait, those that an actor works on, and results that nobody has taken yet.

Knows actors by number only, and nothing of Ray. Every item leaves exactly once: as a result, as a PoolFailure, or
withdrawn.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from actors.pool_records import ItemGivenUp, Loss, PoolFailure

_log = logging.getLogger(__name__)
SETTLE_SECONDS = 5.0
"""After the last loss that an item may have, before it is given up: other workers that were lost with it are known
then."""
ABSENT_SECONDS = 30.0
"""The same if the worker is out of reach rather than dead: its node may have left, which Ray finds out in 15 s."""
LOSSES_TO_ONE = 3
"""All losses that an item may have, for each that may be its fault."""
_SPARE = 64  # removed items that the heap may have in any case


@dataclass
class Work:
    """An item on its way. `actor` works on it until `deadline` (seconds of the monotonic clock); None: it waits.

    With `actor` but without a `deadline` it was given ahead, and waits there until the actor has ended what it had.
    `losses`: the workers that it lost. `decided_at`: when it is decided whether they are its fault; None: it may go on.
    `key`: what it is withdrawn by, None if by its content alone. `is_waiting`: whether the next actor may have it.
    `is_suspect`: an actor was lost that had it with others, so it is given alone from now on.
    """

    ticket: int
    item: Any
    method: str
    priority: int
    affinity: Hashable
    actor: int | None = None
    given: float = 0.0
    deadline: float | None = None
    losses: list[Loss] = field(default_factory=list)
    decided_at: float | None = None
    key: Hashable = None
    is_waiting: bool = False
    is_suspect: bool = False

    @property
    def is_doubted(self) -> bool:
        """Whether it was there when an actor was lost."""
        return self.is_suspect or bool(self.losses)

    @property
    def counted(self) -> int:
        """How many losses may be its fault."""
        return sum(not loss.excuse for loss in self.losses)


class WorkQueue:
    """Hands out work by priority, lower first, and among equals in the order of submission.

    Work that lost its worker returns to its place in the queue, up to `max_retries` times if that may be its fault, and
    never more than `LOSSES_TO_ONE` times as often. What is done with an item takes a time that does not depend on how
    many there are, but for the logarithm of a heap.
    """

    def __init__(self, name: str, max_retries: int) -> None:
        """`name` is the pool's, for messages."""
        self._name, self._max_retries = name, max_retries
        self._most_losses = LOSSES_TO_ONE * (max_retries + 1)
        self._tickets = itertools.count()
        self._work: dict[int, Work] = {}
        self._heap: list[tuple[int, int]] = []  # (priority, ticket) of what waits, and of what was removed meanwhile
        self._waiting = 0
        self._deadlines: list[tuple[float, int]] = []  # a heap, with tickets of what has ended meanwhile
        self._undecided: dict[int, Work] = {}
        self._by_key: dict[Hashable, set[int]] = {}
        self._results: list[tuple[Any, Any]] = []
        self.moves = 0
        """Items that ended, or lost their workers, so far."""

    @property
    def pending(self) -> int:
        """Items submitted and not taken as results yet."""
        return len(self._work) + len(self._results)

    @property
    def outstanding(self) -> int:
        """Items without a result."""
        return len(self._work)

    @property
    def waiting(self) -> int:
        """Items that no actor works on, and that the next one may have."""
        return self._waiting

    @property
    def has_news(self) -> bool:
        """Whether there are results to take, or no work that could give any."""
        return bool(self._results) or not self._work

    def work(self) -> list[Work]:
        """All work without a result, in the order of submission."""
        return list(self._work.values())

    def running(self) -> list[Work]:
        """The work that actors have."""
        return [work for work in list(self._work.values()) if work.actor is not None]  # also from another thread

    def find(self, ticket: int) -> Work | None:
        """The work with this number, None if it is finished or withdrawn."""
        return self._work.get(ticket)

    def with_keys(self, keys: Collection[Hashable]) -> list[Work]:
        """The work that was submitted with one of these keys, in the order of submission."""
        tickets = sorted(ticket for key in keys for ticket in self._by_key.get(key, ()))
        return [self._work[ticket] for ticket in tickets]

    def submit(self, item: Any, method: str, priority: int, affinity: Hashable, key: Hashable = None) -> None:
        """Queues an item."""
        ticket = next(self._tickets)
        work = self._work[ticket] = Work(ticket, item, method, priority, affinity, key=key)
        if key is not None:
            self._by_key.setdefault(key, set()).add(ticket)
        self._push(work)

    def first(self) -> Work:
        """The work that is to run next. There must be some that waits."""
        while (work := self._work.get(self._heap[0][1])) is None or not work.is_waiting:
            heapq.heappop(self._heap)  # it was removed
        return work

    def start_first(self, actor: int, now: float, deadline: float | None) -> Work:
        """Gives the first work to an actor. Without a deadline it is given ahead: `begin` sets one later."""
        work = self.first()
        heapq.heappop(self._heap)
        work.is_waiting = False
        self._waiting -= 1
        work.actor = actor
        if deadline is not None:
            self.begin(work, now, deadline)
        return work

    def begin(self, work: Work, now: float, deadline: float) -> None:
        """An actor begins with work that it has, and has until `deadline`."""
        work.given, work.deadline = now, deadline
        heapq.heappush(self._deadlines, (deadline, work.ticket))
        if len(self._deadlines) > 2 * len(self._work) + _SPARE:
            self._deadlines = [entry for entry in self._deadlines if self._holds(*entry)]
            heapq.heapify(self._deadlines)

    def put_back(self, work: Work) -> None:
        """Puts work back in its place that an actor was given ahead, and did not begin."""
        work.actor = work.deadline = None
        self._push(work)

    def suspect(self, works: Sequence[Work], reason: str) -> None:
        """Puts work back in its place whose actor was lost while it had all of this together."""
        _log.warning("pool %s: %d items are tried again one by one: %s", self._name, len(works), reason)
        self.moves += 1
        for work in works:
            work.is_suspect = True
            self.put_back(work)

    def overdue(self, now: float) -> list[Work]:
        """The work whose time is over."""
        late = []
        while (deadline := self._next_deadline()) is not None and now > deadline:
            late.append(self._work[heapq.heappop(self._deadlines)[1]])
        return late

    def lose(self, work: Work, loss: Loss, *, is_absent: bool = False) -> bool:
        """Puts work that lost its worker back in its place; False if it has to be decided first whether it goes on.
        `is_absent`: the worker is out of reach rather than dead."""
        work.losses.append(loss)
        work.actor = work.deadline = None
        self.moves += 1
        if work.counted > self._max_retries or len(work.losses) >= self._most_losses:
            work.decided_at = loss.at + (ABSENT_SECONDS if is_absent else SETTLE_SECONDS)
            self._undecided[work.ticket] = work
            return False
        self._requeue(work)
        return True

    def decide(self, now: float, excuses: Callable[[Sequence[Loss]], Sequence[str]]) -> None:
        """Gives up what has lost too many workers, and lets go on what they are no fault of. `excuses`: one for each
        loss, empty without one."""
        for work in list(self._undecided.values()):
            if work.decided_at is None or now < work.decided_at:
                continue
            found = excuses(work.losses)
            work.losses = [replace(loss, excuse=excuse) for loss, excuse in zip(work.losses, found, strict=True)]
            is_set_aside = work.counted > self._max_retries
            if is_set_aside or len(work.losses) >= self._most_losses:
                error = ItemGivenUp(f"pool {self._name}: {work.method}", work.losses, is_set_aside=is_set_aside)
                _log.error("%s", error)
                self.finish(work, PoolFailure(error))
            else:
                work.decided_at = None
                del self._undecided[work.ticket]
                self._requeue(work)

    def decisions(self) -> list[float]:
        """When the work that waits for a decision gets one, in seconds of the monotonic clock."""
        return [work.decided_at for work in self._undecided.values() if work.decided_at is not None]

    def deadlines(self) -> list[float]:
        """When something is to be done next, in seconds of the monotonic clock."""
        deadline = self._next_deadline()
        return [*([] if deadline is None else [deadline]), *self.decisions()]

    def _next_deadline(self) -> float | None:
        """The first deadline of work that an actor has. Drops those before it, which hold for nothing any more."""
        while self._deadlines:
            if self._holds(*self._deadlines[0]):
                return self._deadlines[0][0]
            heapq.heappop(self._deadlines)
        return None

    def _holds(self, deadline: float, ticket: int) -> bool:
        work = self._work.get(ticket)
        return work is not None and work.deadline == deadline

    def _requeue(self, work: Work) -> None:
        _log.warning("pool %s: %s is tried again elsewhere: %s", self._name, work.method, work.losses[-1])
        self._push(work)

    def _push(self, work: Work) -> None:
        work.is_waiting = True
        self._waiting += 1
        heapq.heappush(self._heap, (work.priority, work.ticket))

    def finish(self, work: Work, result: Any) -> None:
        """Ends work with a result."""
        self.moves += 1
        self._results.append((work.item, result))
        self.remove(work)

    def remove(self, work: Work) -> None:
        """Drops work without a result."""
        del self._work[work.ticket]
        self._undecided.pop(work.ticket, None)
        if work.key is not None:
            alike = self._by_key[work.key]
            alike.discard(work.ticket)
            if not alike:
                del self._by_key[work.key]
        if work.is_waiting:
            self._waiting -= 1
            if len(self._heap) > 2 * self._waiting + _SPARE:  # so that removing costs no more than submitting did
                self._heap = [entry for entry in self._heap if entry[1] in self._work]
                heapq.heapify(self._heap)

    def take_results(self) -> list[tuple[Any, Any]]:
        """(item, result) of all work that ended since the last call, in order of completion."""
        results, self._results = self._results, []
        return results

    def clear(self) -> None:
        """Forgets everything."""
        for part in (self._work, self._heap, self._deadlines, self._undecided, self._by_key, self._results):
            part.clear()
        self._waiting = 0
