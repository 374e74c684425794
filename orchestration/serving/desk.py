"""The queue of a service: each program is judged once, whoever asks for it, how often and when.

A request is on disk before it is accepted. All of this runs in the thread of the service's event loop.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol

from evaluators.records import Candidate, Outcome, Task, Verdict, digest_of
from evaluators.tasks.records import TaskError, checked
from orchestration.serving.clients import Client, Clients
from orchestration.serving.ledger import Ledger
from orchestration.serving.records import Ask, Entry, Refusal, Request, SentTask, request_id

_NAMED = 80  # characters of a name that a message repeats


class Judges(Protocol):
    """Judges at most `depth` requests at once (`orchestration.serving.judge`)."""

    depth: int

    def submit(self, request: Request) -> None: ...


class Desk:
    """Accepts requests, hands them to the judge by priority, and keeps the answers.

    `settings`: the digest of what verdicts depend on beside program and task. `on_failure` hears if the disk fails.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task],
        ledger: Ledger,
        judge: Judges,
        clients: Clients,
        settings: str,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._tasks, self._ledger, self._judge, self._clients = dict(tasks), ledger, judge, clients
        self._settings, self._on_failure = settings, on_failure
        names = {task.name: task.id for task in tasks.values()}
        self._ids = {**names, **{task_id: task_id for task_id in tasks}}
        self._entries: dict[str, Entry] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._numbers = itertools.count(ledger.numbers() + 1)
        self.judging = 0
        self.closing = asyncio.Event()
        self.on_settled: Callable[[str, float], None] = lambda *_: None
        """Hears of each verdict: its outcome, and the seconds since its program was asked for."""

    @property
    def waiting(self) -> int:
        """Requests without a verdict, those that are judged now included."""
        return len(self._entries)

    def resume(self) -> None:
        """Goes on with the requests that an earlier process accepted. Those for other settings, or for what their task
        was before, are judged by today's, under another id. One whose task is not here any more stays on disk."""
        for stored in self._ledger.waiting():
            request = self._ledger.request(stored.id, self._tasks)
            if request is None:
                continue
            name = request_id(request.task.digest, request.candidate.digest, self._settings)
            if name != stored.id:
                self._ledger.move(stored.id, name, self._settings).result()
            if name in self._entries or self._ledger.verdict(name) is not None:
                continue
            entry = self._enter(replace(request, id=name), stored.number)
            entry.accepted.set_result(None)
            heapq.heappush(self._heap, (-entry.priority, entry.number, entry.id))
        self._feed()

    async def ask(self, ask: Ask, client: Client) -> tuple[str, Entry | bytes]:
        """The id of a request, with its verdict as JSON, or with its place in the queue, once that is on disk. Raises
        Refusal."""
        task = self._task_of(ask.task, client)
        candidate = await asyncio.to_thread(Candidate.propose, task.id, ask.program, f"client:{client.name}")
        name = request_id(task.digest, candidate.digest, self._settings)
        entry = self._entries.get(name)
        if entry is None:
            known = self._ledger.verdict(name)
            if known is not None and known[0] is not Outcome.INFRA:
                return name, known[1]
            is_sent = isinstance(ask.task, SentTask)
            return name, await self._accept(Request(name, task, candidate, client.name, ask.priority, is_sent), client)
        await asyncio.shield(entry.accepted)
        if ask.priority > entry.priority and not entry.is_judging:
            entry.priority = ask.priority
            await self._stored(self._ledger.prefer(name, ask.priority))
            heapq.heappush(self._heap, (-entry.priority, entry.number, name))
        return name, entry

    def find(self, name: str) -> Entry | bytes:
        """A request by its id: its verdict as JSON, or its place in the queue. Raises Refusal for an unknown id."""
        entry = self._entries.get(name)
        if entry is not None:
            return entry
        known = self._ledger.verdict(name)
        if known is None:
            raise Refusal(404, "no request has this id; ask for the verdict with POST /v1/verdicts")
        return known[1]

    def settle(self, request: Request, verdict: Verdict, row: bytes) -> None:
        """Takes a verdict that is on disk."""
        entry = self._entries.pop(request.id, None)
        self.judging -= 1
        if entry is not None:
            self._clients.named(entry.client).places -= 1
            entry.done.set_result(row)
            self.on_settled(str(verdict.outcome), time.monotonic() - entry.asked)
        self._feed()

    def _task_of(self, named: str | SentTask, client: Client) -> Task:
        if isinstance(named, str):
            task_id = self._ids.get(named)
            if task_id is None:
                raise Refusal(400, f"task: there is no task {named[:_NAMED]!r} here; GET /v1/tasks lists them")
            return self._tasks[task_id]
        if not client.sends_tasks:
            raise Refusal(
                403,
                "task.source: a task's own text runs uncontained, so only clients with the word `tasks` in their line "
                "of the service's tokens may send one; name a task of GET /v1/tasks",
            )
        name = f"source/{digest_of(named.source)}"
        try:
            return checked(Task(name, 0, name, named.source), "task.source")
        except TaskError as error:
            raise Refusal(400, error) from None

    async def _accept(self, request: Request, client: Client) -> Entry:
        limits = self._clients.limits
        if client.places >= limits.places:
            raise Refusal(429, f"{client.places} requests of {client.name} wait already, which is the most", 5)
        if self.waiting >= limits.queue:
            raise Refusal(503, f"{self.waiting} requests wait already, which is the most", 10)
        entry = self._enter(request, next(self._numbers))
        try:
            await self._stored(self._ledger.accept(request, entry.number, self._settings))
        except Refusal as error:
            del self._entries[request.id]
            client.places -= 1
            entry.accepted.set_exception(error)
            entry.accepted.exception()  # nobody else may wait for it
            raise
        entry.accepted.set_result(None)
        heapq.heappush(self._heap, (-entry.priority, entry.number, entry.id))
        self._feed()
        return entry

    def _enter(self, request: Request, number: int) -> Entry:
        entry = self._entries[request.id] = Entry(request.id, request.client, request.priority, number)
        self._clients.named(request.client).places += 1
        return entry

    async def _stored(self, stored: Future[None]) -> None:
        """Waits for the disk. Raises Refusal, and ends the service, if it fails."""
        try:
            await asyncio.wrap_future(stored)
        except sqlite3.Error as error:
            self._on_failure(error)
            raise Refusal(503, f"the request cannot be stored: {error}", 30) from None

    def _feed(self) -> None:
        """Gives the judge what it has room for, the highest priorities first."""
        while self._heap and self.judging < self._judge.depth:
            _, _, name = heapq.heappop(self._heap)
            entry = self._entries.get(name)
            if entry is None or entry.is_judging:
                continue  # it stood here twice, since somebody preferred it
            request = self._ledger.request(name, self._tasks)
            assert request is not None, "what is accepted is on disk"
            entry.is_judging = True
            self.judging += 1
            self._judge.submit(request)


def settler(
    desk: Desk, ledger: Ledger, loop: asyncio.AbstractEventLoop, on_failure: Callable[[Exception], None]
) -> Callable[[Request, Verdict, bytes], None]:
    """What the judge's thread calls with a verdict: it reaches the desk once it is on disk."""

    def settle(request: Request, verdict: Verdict, row: bytes) -> None:
        def then(stored: Future[None]) -> None:
            error = stored.exception()
            if isinstance(error, Exception):
                on_failure(error)
            else:
                loop.call_soon_threadsafe(desk.settle, request, verdict, row)

        ledger.settle(request.id, verdict, row).add_done_callback(then)

    return settle
