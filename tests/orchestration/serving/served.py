"""A service's desk, ledger and HTTP interface in this process, whose judge waits to be told.

The evaluators are what takes seconds; here a request is judged when a test says so.
"""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

from aiohttp import web

from evaluators.records import Estimate, Outcome, Task, Verdict
from evaluators.tasks import find_task
from orchestration.serving.api import Api
from orchestration.serving.clients import Clients
from orchestration.serving.desk import Desk, settler
from orchestration.serving.ledger import KEPT, Ledger
from orchestration.serving.metrics import Metrics
from orchestration.serving.records import Request, as_json

SOFTMAX = find_task("level1/softmax")
TASKS = {SOFTMAX.id: SOFTMAX}
ADDRESS = "http://127.0.0.1"


def program(number: int) -> str:
    """One of many programs, all different."""
    return f"class ModelNew:\n    number = {number}\n"


def verdict_on(request: Request, outcome: Outcome = Outcome.OK, speedup: float = 1.5) -> Verdict:
    """What an evaluator could say."""
    speedups = {"eager": Estimate(speedup, speedup, speedup, 9)} if outcome is Outcome.OK else {}
    settings = {"preset": "fast", "task_digest": request.task.digest}
    return Verdict(request.candidate.digest, request.task.id, "cpu", outcome, speedups=speedups, evaluator=settings)


class WaitingJudge:
    """Judges a request when it is told to. `given`: what the desk has handed over, in its order."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.given: Queue[Request] = Queue()
        self.order: list[str] = []

    def submit(self, request: Request) -> None:
        self.order.append(request.candidate.source)
        self.given.put(request)


class Served:
    """A service that answers at `url`."""

    def __init__(
        self, folder: Path, clients: Clients, tasks: Mapping[str, Task], depth: int, settings: str, port: int, kept: int
    ) -> None:
        self.judge = WaitingJudge(depth)
        self.ledger = Ledger(folder / "requests.sqlite", kept)
        self.failures: list[Exception] = []
        self._parts = clients, tasks, settings, port
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)
        self._thread.start()
        assert self._ready.wait(30)

    async def _run(self) -> None:
        clients, tasks, settings, port = self._parts
        self._ended = asyncio.Event()
        self.desk = Desk(tasks, self.ledger, self.judge, clients, settings, self.failures.append)
        self._settle = settler(self.desk, self.ledger, self._loop, self.failures.append)
        metrics = Metrics(lambda: self.desk.waiting, lambda: self.desk.judging, lambda: 1)
        self.desk.on_settled = metrics.judged
        self.desk.resume()
        api = Api(self.desk, self.ledger, clients, tasks, metrics, {"arch": "cpu"}, lambda: 1)
        runner = web.AppRunner(api.application(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        self.url = f"{ADDRESS}:{runner.addresses[0][1]}"
        self._ready.set()
        await self._ended.wait()
        self.desk.closing.set()
        await runner.cleanup()

    def release(self, outcome: Outcome = Outcome.OK, speedup: float = 1.5) -> Request:
        """Judges what was handed over first."""
        request = self.judge.given.get(timeout=30)
        verdict = verdict_on(request, outcome, speedup)
        self._settle(request, verdict, as_json(verdict))
        return request

    def close(self) -> None:
        """Ends it, without a verdict for what waits."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(30)
        self.ledger.close()


@contextmanager
def served(
    folder: Path,
    clients: Clients | None = None,
    *,
    tasks: Mapping[str, Task] = TASKS,
    depth: int = 2,
    settings: str = "settings",
    port: int = 0,
    kept: int = KEPT,
) -> Iterator[Served]:
    """Within this block, a service is served from a folder."""
    service = Served(folder, clients or Clients(), tasks, depth, settings, port, kept)
    try:
        yield service
    finally:
        service.close()


def call(
    url: str, body: Any = None, token: str = "", method: str = "", headers: dict[str, str] | None = None
) -> tuple[int, Any, dict[str, str]]:
    """Status, JSON (or text) and headers of an answer. `body`: bytes as they are, anything else as JSON."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    known = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(url, data=data, headers={**known, **(headers or {})}, method=method or None)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, _parsed(answer.read()), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, _parsed(error.read()), dict(error.headers)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()
