"""The requests that a service has accepted, and their verdicts, in an SQLite database.

What a call has stored survives a kill of the process and of the machine: a request is accepted only after that, and
goes on after a restart. One thread writes; whatever waits for it goes into one transaction, so that many requests wait
for one flush of the disk.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from evaluators.records import Candidate, Outcome, Task, Verdict
from orchestration.serving.records import Request, request_id

KEPT = 1_000_000
"""Verdicts that are kept, with their requests, unless a service says otherwise: some gigabytes."""
_MOST_AT_ONCE = 256  # statements of one transaction
_FORGOTTEN_AT_ONCE = 2 * _MOST_AT_ONCE  # requests that a transaction removes, so that there are never more and more
_TABLES = """
CREATE TABLE IF NOT EXISTS requests (
    id TEXT PRIMARY KEY, number INTEGER NOT NULL, settings TEXT NOT NULL, client TEXT NOT NULL,
    priority INTEGER NOT NULL, task TEXT NOT NULL, task_source BLOB, candidate TEXT NOT NULL, program BLOB NOT NULL,
    outcome TEXT, speedup REAL, verdict BLOB, verdicts INTEGER NOT NULL DEFAULT 0, settled INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS waiting ON requests (number) WHERE outcome IS NULL;
CREATE INDEX IF NOT EXISTS candidates ON requests (candidate);
CREATE INDEX IF NOT EXISTS outcomes ON requests (outcome, verdicts);
"""
_SETTLED = "CREATE INDEX IF NOT EXISTS judged ON requests (settled) WHERE outcome IS NOT NULL"
_ACCEPT = """
INSERT INTO requests (id, number, settings, client, priority, task, task_source, candidate, program)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET number = excluded.number, client = excluded.client, priority = excluded.priority,
    outcome = NULL, verdict = NULL
WHERE requests.outcome IS NULL OR requests.outcome = 'infra'
"""
_LAST = "SELECT max(settled) FROM requests WHERE outcome IS NOT NULL"
_SETTLE = f"""
UPDATE requests SET outcome = ?, speedup = ?, verdict = ?, verdicts = verdicts + 1,
    settled = (SELECT coalesce(({_LAST}), 0) + 1)
WHERE id = ?
"""
_FORGET = f"""
DELETE FROM requests WHERE id IN (
    SELECT id FROM requests WHERE outcome IS NOT NULL AND settled <= ({_LAST}) - ? ORDER BY settled LIMIT ?)
"""
_OUTCOMES = "SELECT coalesce(outcome, ''), count(*) FROM requests GROUP BY outcome"
_JUDGED = "SELECT verdicts, count(*) FROM requests GROUP BY verdicts"
_Statement = tuple[str, tuple[Any, ...], Future[None]]


@dataclass(frozen=True)
class Stored:
    """A request as the database has it, without its program."""

    id: str
    number: int
    client: str
    priority: int


class Ledger:
    """The database at a path, which is made if need be. For one process at a time, and any of its threads.

    `kept`: so many verdicts are kept, the newest; with an older one its request is forgotten.
    """

    def __init__(self, path: Path, kept: int = KEPT) -> None:
        """Raises OSError or sqlite3.Error if there is no such database and none can be made."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        self._path, self._kept = path, kept
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(_TABLES)
            if "settled" not in {column for _, column, *_ in database.execute("PRAGMA table_info(requests)")}:
                database.execute("ALTER TABLE requests ADD COLUMN settled INTEGER NOT NULL DEFAULT 0")
            database.execute(_SETTLED)
        database.close()
        self._reading = threading.Lock()
        self._reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._queue: SimpleQueue[_Statement | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="ledger", daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Stores what is on its way, and ends the writing thread."""
        self._queue.put(None)
        self._writer.join()
        self._reader.close()

    def accept(self, request: Request, number: int, settings: str) -> Future[None]:
        """Stores a request; one whose verdict was `infra` waits again. The future is done once it is on disk; it raises
        sqlite3.Error if it cannot be stored."""
        source = _to_bytes(request.task.source) if request.is_sent else None
        candidate = request.candidate
        row = (request.id, number, settings, request.client, request.priority, request.task.id, source)
        return self._put(_ACCEPT, (*row, candidate.digest, _to_bytes(candidate.source)))

    def settle(self, request_id: str, verdict: Verdict, row: bytes) -> Future[None]:
        """Stores a verdict; `row`: the same as JSON. The future: see `accept`."""
        speedup = verdict.speedup if verdict.outcome is Outcome.OK else None
        return self._put(_SETTLE, (str(verdict.outcome), speedup, row, request_id))

    def prefer(self, request_id: str, priority: int) -> Future[None]:
        """Stores another priority. The future: see `accept`."""
        return self._put("UPDATE requests SET priority = ? WHERE id = ?", (priority, request_id))

    def move(self, request_id: str, new_id: str, settings: str) -> Future[None]:
        """Names a waiting request anew, under other settings; if there is one of that name, it is dropped."""
        self._put("UPDATE OR IGNORE requests SET id = ?, settings = ? WHERE id = ?", (new_id, settings, request_id))
        return self._put("DELETE FROM requests WHERE id = ?", (request_id,))

    def verdict(self, request_id: str) -> tuple[Outcome, bytes] | None:
        """The outcome and the verdict of a request, as JSON; None without one."""
        row = self._one("SELECT outcome, verdict FROM requests WHERE id = ?", request_id)
        return None if row is None or row[0] is None else (Outcome(row[0]), row[1])

    def waiting(self) -> list[Stored]:
        """The requests without a verdict, in the order in which they were accepted."""
        columns = "id, number, client, priority"
        rows = self._all(f"SELECT {columns} FROM requests WHERE outcome IS NULL ORDER BY number")
        return [Stored(*row) for row in rows]

    def request(self, request_id: str, tasks: dict[str, Task]) -> Request | None:
        """A request as it was accepted. None for an unknown one, or if its task is not among `tasks` any more."""
        columns = "client, priority, task, task_source, candidate, program"
        row = self._one(f"SELECT {columns} FROM requests WHERE id = ?", request_id)
        if row is None:
            return None
        client, priority, task_id, source, digest, program = row
        task = tasks.get(task_id) if source is None else Task(task_id, 0, task_id, _to_text(source))
        if task is None:
            return None
        candidate = Candidate(digest, task_id, _to_text(program), f"client:{client}")
        return Request(request_id, task, candidate, client, priority, is_sent=source is not None)

    def numbers(self) -> int:
        """The highest number of a request."""
        return int((self._one("SELECT max(number) FROM requests") or (0,))[0] or 0)

    def outcomes(self) -> dict[str, int]:
        """How many requests have each outcome; those without a verdict under an empty name."""
        return dict(self._count(_OUTCOMES))

    def judged(self) -> dict[int, int]:
        """How many requests have had how many verdicts."""
        return dict(self._count(_JUDGED))

    def believed(self, settings: str, tasks: Mapping[str, str]) -> Iterator[tuple[str, str, float | None]]:
        """Task, digest of the program and speed-up of all right ones under these settings. `tasks`: the digest of each
        task by its id; verdicts on what a task was before are left out."""
        columns = "id, task, task_source IS NOT NULL, candidate, speedup"
        found = f"SELECT {columns} FROM requests WHERE outcome = 'ok' AND settings = ?"
        for name, task, is_sent, candidate, speedup in self._all(found, settings):
            if is_sent or name == request_id(tasks.get(task, ""), candidate, settings):
                yield task, candidate, speedup

    def verdicts_on(self, candidates: Iterable[str]) -> Iterator[tuple[str, Verdict]]:
        """The verdicts on these programs, by the ids of their requests."""
        for candidate in candidates:
            found = "SELECT id, verdict FROM requests WHERE candidate = ? AND outcome IS NOT NULL"
            for name, row in self._all(found, candidate):
                yield name, Verdict.from_row(msgspec.json.decode(row))

    def _count(self, statement: str) -> list[tuple[Any, ...]]:
        """Counts all requests over a connection of its own: this takes a while, in which others read."""
        with closing(sqlite3.connect(self._path)) as database:
            return database.execute(statement).fetchall()

    def _one(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        with self._reading:
            return self._reader.execute(statement, values).fetchone()

    def _all(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._reading:
            return self._reader.execute(statement, values).fetchall()

    def _put(self, statement: str, values: tuple[Any, ...]) -> Future[None]:
        stored: Future[None] = Future()
        self._queue.put((statement, values, stored))
        return stored

    def _write(self) -> None:
        """The writing thread: a transaction for all that waits."""
        database = sqlite3.connect(self._path, isolation_level=None)
        database.execute("PRAGMA synchronous = FULL")
        goes_on = True
        while goes_on:
            first = self._queue.get()
            batch = [] if first is None else [first]
            goes_on = first is not None
            while goes_on and len(batch) < _MOST_AT_ONCE and not self._queue.empty():
                following = self._queue.get()
                if following is None:
                    goes_on = False
                else:
                    batch.append(following)
            self._commit(database, batch)
        database.close()

    def _commit(self, database: sqlite3.Connection, batch: list[_Statement]) -> None:
        if not batch:
            return
        try:
            database.execute("BEGIN IMMEDIATE")
            for statement, values, _ in batch:
                database.execute(statement, values)
            database.execute(_FORGET, (self._kept, _FORGOTTEN_AT_ONCE))
            database.execute("COMMIT")
        except sqlite3.Error as error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            for _, _, stored in batch:
                stored.set_exception(error)
            return
        for _, _, stored in batch:
            stored.set_result(None)


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _to_text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")
