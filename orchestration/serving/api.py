"""The service's HTTP interface, version 1 (docs/guides/other-trainers.md). Every error is one line of JSON."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from evaluators.records import Task
from orchestration.serving.clients import Client, Clients, is_loopback
from orchestration.serving.desk import Desk
from orchestration.serving.ledger import Ledger
from orchestration.serving.metrics import Metrics
from orchestration.serving.records import Ask, Entry, Refusal

MOST_BYTES = 2 << 20
"""Of a request's body. The longest program that is judged has 200,000 characters, which JSON may write with six bytes
each."""
LONGEST_WAIT = 60.0
"""Seconds for which an answer may be held back until there is a verdict."""
_BODY_SECONDS = 30.0
_CLIENT = web.RequestKey("client", Client)
_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Api:
    """Answers requests from a desk. `about`: what `GET /v1/health` says beside the number of evaluators."""

    def __init__(
        self,
        desk: Desk,
        ledger: Ledger,
        clients: Clients,
        tasks: Mapping[str, Task],
        metrics: Metrics,
        about: Mapping[str, str],
        evaluators: Callable[[], int],
    ) -> None:
        self._desk, self._ledger, self._clients, self._metrics = desk, ledger, clients, metrics
        self._about, self._evaluators = about, evaluators
        self._tasks = [{"id": task.id, "level": task.level, "name": task.name} for task in tasks.values()]

    def application(self) -> web.Application:
        """The application, for one event loop."""
        app = web.Application(client_max_size=MOST_BYTES, middlewares=[self._guard])
        app.router.add_post("/v1/verdicts", self._ask)
        app.router.add_get("/v1/verdicts/{id}", self._find)
        app.router.add_get("/v1/queue", self._queue)
        app.router.add_get("/v1/tasks", self._list_tasks)
        app.router.add_get("/v1/health", self._health)
        app.router.add_get("/metrics", self._show_metrics)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Admits the client, and turns whatever goes wrong into one line."""
        name = ""
        try:
            if request.path != "/v1/health":
                self._refuse_other_sites(request)
                request[_CLIENT] = client = self._clients.admit(request.headers.get("Authorization", ""))
                name = client.name
            answer = await handler(request)
        except Refusal as refusal:
            answer = _error(refusal)
        except web.HTTPException as error:
            answer = _error(_in_a_line(error, request))
        except Exception:  # noqa: BLE001 - the next request must be answered all the same
            _log.exception("a request failed")
            answer = _error(Refusal(500, "the service failed; its log says why", 5))
        self._metrics.answered(name, answer.status)
        return answer

    def _refuse_other_sites(self, request: web.Request) -> None:
        """Without tokens, a web page in this machine's browser must not reach the service under its own name."""
        host = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
        if not self._clients.needs_token and not is_loopback(host):
            raise Refusal(403, "a service without tokens answers under 127.0.0.1 and localhost alone")

    async def _ask(self, request: web.Request) -> web.Response:
        wait, ask = _wait_of(request), await _read_ask(request)
        name, found = await self._desk.ask(ask, request[_CLIENT])
        return await self._answer(name, found, wait)

    async def _find(self, request: web.Request) -> web.Response:
        wait, name = _wait_of(request), request.match_info["id"]
        return await self._answer(name, self._desk.find(name), wait)

    async def _answer(self, name: str, found: Entry | bytes, wait: float) -> web.Response:
        """200 with the verdict, or 202 if there is none within `wait` seconds."""
        place = f"/v1/verdicts/{name}"
        if isinstance(found, Entry) and wait and not found.done.done():
            closing = asyncio.ensure_future(self._desk.closing.wait())
            either: set[asyncio.Future[Any]] = {found.done, closing}
            try:
                await asyncio.wait(either, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            finally:
                closing.cancel()
        if isinstance(found, Entry):
            if not found.done.done():
                state = "judging" if found.is_judging else "queued"
                row = {"id": name, "state": state, "priority": found.priority, "waiting": self._desk.waiting}
                return _json(row, 202, {"Location": place, "Retry-After": "1"})
            found = found.done.result()
        return web.Response(body=found, content_type="application/json", headers={"Content-Location": place})

    async def _queue(self, request: web.Request) -> web.Response:
        client, desk = request[_CLIENT], self._desk
        outcomes = await asyncio.to_thread(self._ledger.outcomes)
        outcomes.pop("", None)
        return _json(
            {
                "waiting": desk.waiting,
                "judging": desk.judging,
                "evaluators": self._evaluators(),
                "verdicts": outcomes,
                "client": {"name": client.name, "waiting": client.places, "places": self._clients.limits.places},
            }
        )

    async def _list_tasks(self, _: web.Request) -> web.Response:
        return _json({"tasks": self._tasks})

    async def _health(self, _: web.Request) -> web.Response:
        ready = self._evaluators()
        return _json({"status": "ok" if ready else "no evaluator is ready", **self._about, "evaluators": ready})

    async def _show_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), content_type="text/plain", charset="utf-8")


async def _read_ask(request: web.Request) -> Ask:
    """The body of a request for a verdict. Raises Refusal."""
    if request.content_type != "application/json":  # a form of another site's page cannot send it
        raise Refusal(415, "send the header `Content-Type: application/json`")
    try:
        body = await asyncio.wait_for(request.read(), _BODY_SECONDS)
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {_BODY_SECONDS:.0f} s") from None
    try:
        return msgspec.json.decode(body, type=Ask)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, f"body: {str(error)[:500]}") from None


def _wait_of(request: web.Request) -> float:
    text = request.query.get("wait", "0")
    try:
        wait = float(text)
    except ValueError:
        wait = math.nan
    if not 0.0 <= wait <= LONGEST_WAIT:
        raise Refusal(400, f"wait must be from 0 to {LONGEST_WAIT:.0f} seconds, got {text[:40]!r}")
    return wait


def _json(row: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(row), status=status, content_type="application/json", headers=dict(headers or {})
    )


def _error(refusal: Refusal) -> web.Response:
    headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after else {}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _json({"error": refusal.line}, refusal.status, headers)


def _in_a_line(error: web.HTTPException, request: web.Request) -> Refusal:
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return Refusal(413, f"body: more than {MOST_BYTES} bytes")
    if isinstance(error, web.HTTPMethodNotAllowed):
        return Refusal(405, f"{request.path[:80]} takes {', '.join(sorted(error.allowed_methods))}")
    if isinstance(error, web.HTTPNotFound):
        return Refusal(404, "there is nothing here; the interface is POST /v1/verdicts, GET /v1/verdicts/ID, /v1/queue,"
                            " /v1/tasks, /v1/health and /metrics")  # fmt: skip
    return Refusal(error.status, error.reason)
