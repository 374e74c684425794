"""Asks a service for verdicts, and waits for them, through a service that is away for a while.

Asking twice is harmless: the service judges a program once. So whatever fails on the way is asked again.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from evaluators.records import Verdict

VARIABLE = "WARPSMITH_TOKEN"
_LONGEST_WAIT = 30.0  # seconds for which an answer is held back; a service holds it for 60 at most
_ANSWER_SECONDS = 30.0  # for an answer beyond that
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_AWAY = (408, 429, 500, 502, 503, 504)


class ServiceError(Exception):
    """The service gave no verdict. One line that says why."""


class _Away(Exception):
    """The service does not answer, or has no room. `pause`: seconds that it asks to wait; 0 if it does not say.
    `is_full`: the places of this client are taken."""

    def __init__(self, why: str, pause: float = 0.0, *, is_full: bool = False) -> None:
        super().__init__(why)
        self.pause, self.is_full = pause, is_full


@dataclass(frozen=True)
class Asked:
    """A program to be judged. `task`: the id or the name of a task of the service, or `{"source": TEXT}` of a task in
    KernelBench's format."""

    task: str | Mapping[str, str]
    program: str
    priority: int = 0

    def body(self) -> dict[str, Any]:
        """As the service reads it."""
        task = self.task if isinstance(self.task, str) else dict(self.task)
        return {"task": task, "program": self.program, "priority": self.priority}


class Verdicts:
    """The verdicts of the service at `url`. For any number of threads and processes.

    `token`: this client's; by default that of the variable WARPSMITH_TOKEN. `patience`: seconds for which a service
    that is away, or full, is asked again. `limit`: seconds after which a call gives up on a verdict; 0: never.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience: float = 600.0,
        limit: float = 7200.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ServiceError(f"the service's address must begin with http:// or https://, got {url!r}")
        self._url = url.rstrip("/")
        self._token = os.environ.get(VARIABLE, "") if token is None else token
        self._patience, self._limit, self._clock, self._sleep = patience, limit, clock, sleep

    def __repr__(self) -> str:
        return f"Verdicts({self._url!r})"

    def judge(self, task: str | Mapping[str, str], program: str, *, priority: int = 0) -> Verdict:
        """The verdict on a program. Raises ServiceError."""
        return self.judge_all([Asked(task, program, priority)])[0]

    def judge_all(self, asked: Sequence[Asked]) -> list[Verdict]:
        """The verdicts on programs, in their order. All are sent before the first is waited for. Raises ServiceError if
        the service refuses one, or is away for longer than `patience`."""
        deadline = self._clock() + self._limit if self._limit else float("inf")
        rows: dict[str, Verdict] = {}
        places: list[str] = []
        under_way: deque[tuple[str, Asked]] = deque()
        sent: dict[str, str] = {}  # the place of each body that was sent
        for one in asked:
            body = json.dumps(one.body())
            if body not in sent:
                sent[body] = self._send(body, under_way, rows, deadline)
                if sent[body] not in rows:
                    under_way.append((sent[body], one))
            places.append(sent[body])
        while under_way:
            self._await(*under_way.popleft(), rows, deadline)
        return [rows[place] for place in places]

    def get(self, path: str) -> Any:
        """What the service answers to `GET path`, such as `/v1/health`. Raises ServiceError."""
        return self._patiently("GET", path, None)[1]

    def _send(self, body: str, under_way: deque[tuple[str, Asked]], rows: dict[str, Verdict], deadline: float) -> str:
        """Sends a program; if this client's places are taken, waits for an earlier one first. Returns its place."""
        while True:
            try:
                status, answer, place = self._patiently("POST", "/v1/verdicts", body, stops_full=bool(under_way))
            except _Away:
                self._await(*under_way.popleft(), rows, deadline)
                continue
            if status == 200:
                rows[place] = Verdict.from_row(answer)
            return place

    def _await(self, place: str, one: Asked, rows: dict[str, Verdict], deadline: float) -> None:
        """Waits for the verdict at a place. A service that does not know the place any more is asked anew."""
        while place not in rows:
            left = deadline - self._clock()
            if left <= 0.0:
                raise ServiceError(f"{self._url}: no verdict within {self._limit:.0f} s")
            wait = f"?wait={min(_LONGEST_WAIT, left):.1f}"
            status, answer, found = self._patiently("GET", place + wait, None)
            if status == 404:
                status, answer, found = self._patiently("POST", "/v1/verdicts" + wait, json.dumps(one.body()))
            if status == 200:
                rows[place] = Verdict.from_row(answer)
            elif found and found != place:  # the service has other settings since
                self._await(found, one, rows, deadline)
                rows[place] = rows[found]

    def _patiently(self, method: str, path: str, body: str | None, *, stops_full: bool = False) -> tuple[int, Any, str]:
        """Status, JSON and place of an answer that is one. Raises ServiceError for a refusal, and `_Away` if
        `stops_full` and the places of this client are taken."""
        pause, until = _FIRST_PAUSE, self._clock() + self._patience
        while True:
            try:
                return self._request(method, path, body)
            except _Away as away:
                if away.is_full and stops_full:
                    raise
                left = until - self._clock()
                if left <= 0.0:
                    raise ServiceError(f"{self._url} is away for {self._patience:.0f} s: {away}") from None
                self._sleep(min(away.pause or pause, _LONGEST_PAUSE, left))
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _request(self, method: str, path: str, body: str | None) -> tuple[int, Any, str]:
        """One request. Raises ServiceError for a refusal, `_Away` for what may pass."""
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = None if body is None else body.encode()
        request = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_LONGEST_WAIT + _ANSWER_SECONDS) as answer:
                place = answer.headers.get("Location") or answer.headers.get("Content-Location") or ""
                return answer.status, json.loads(answer.read()), place
        except urllib.error.HTTPError as error:
            line = _line_of(error)
            if error.code in _AWAY:
                raise _Away(line, _seconds_of(error), is_full=error.code == 429) from None
            if error.code == 404 and method == "GET" and path.startswith("/v1/verdicts/"):
                return 404, None, ""
            raise ServiceError(f"{self._url}: {line}") from None
        except (urllib.error.URLError, HTTPException, OSError, ValueError) as error:
            raise _Away(str(getattr(error, "reason", None) or error)) from None


def _line_of(error: urllib.error.HTTPError) -> str:
    """What a refusal says; its status if it is no answer of the service."""
    try:
        return str(json.loads(error.read())["error"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return f"HTTP status {error.code}"


def _seconds_of(error: urllib.error.HTTPError) -> float:
    text = error.headers.get("Retry-After") or ""
    return float(text) if text.isdecimal() else 0.0
