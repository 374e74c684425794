"""What a client sends to the service, what the service keeps of it, and how it refuses. Plain data."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from evaluators.records import Candidate, Task, Verdict, digest_of

LOWEST, HIGHEST = -100, 100
"""Priorities of requests; a higher one goes first."""


class SentTask(msgspec.Struct, forbid_unknown_fields=True):
    """A task by its text, a module in KernelBench's format."""

    source: str


class Ask(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request for a verdict. `task`: the id or the name of a task that the service has, or a text."""

    task: str | SentTask
    program: str
    priority: Annotated[int, msgspec.Meta(ge=LOWEST, le=HIGHEST)] = 0


class Refusal(Exception):
    """An answer that is no verdict: an HTTP status and one line. `retry_after`: seconds after which the same request
    may succeed; 0: it will not."""

    def __init__(self, status: int, line: object, retry_after: int = 0) -> None:
        self.line = " ".join(str(line).split())
        super().__init__(self.line)
        self.status, self.retry_after = status, retry_after


@dataclass(frozen=True)
class Request:
    """A program to be judged for a task. `client`: the name of the client that asked first. `is_sent`: the task's text
    is the client's."""

    id: str
    task: Task
    candidate: Candidate
    client: str
    priority: int
    is_sent: bool = False


@dataclass
class Entry:
    """A request without a verdict. `number`: its place among those that were accepted. `asked`: when, in
    seconds of the monotonic clock, or when the service started again. `accepted` is done once it is on
    disk, `done` once it has its verdict, as JSON."""

    id: str
    client: str
    priority: int
    number: int
    is_judging: bool = False
    asked: float = field(default_factory=time.monotonic)
    accepted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    done: asyncio.Future[bytes] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


def request_id(task: str, candidate: str, settings: str) -> str:
    """Names a verdict by what it depends on: the digests of the task, the program, and the evaluators' settings."""
    return digest_of("\n".join((candidate, task, settings)))


def as_json(verdict: Verdict) -> bytes:
    """A verdict as `warpsmith evaluate --json` prints it."""
    return json.dumps(verdict.to_row(), default=dict).encode()


def settings_digest(settings: Mapping[str, Any]) -> str:
    """The digest of what a verdict depends on beside program and task."""
    return digest_of(msgspec.json.encode(settings, order="sorted").decode())
