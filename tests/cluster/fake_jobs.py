"""A small server of the Ray Jobs API, for what a real cluster does not do on command: losing connections, lying about a
path, ending a job in a given way. Its jobs are records; nothing runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class FakeJob:
    """A job of the server. `log` is sent from its beginning with every connection, `cuts` of which break early."""

    status: str = "RUNNING"
    exit_code: int | None = None
    message: str = ""
    log: str = ""
    cuts: list[int] = field(default_factory=list)  # after so many characters
    request: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.time)
    connections: int = 0


class FakeJobs:
    """The server's state, which tests read and change."""

    def __init__(self) -> None:
        self.jobs: dict[str, FakeJob] = {}
        self.token = ""
        self.packages: list[bytes] = []
        self.stopped: list[str] = []
        self.hidden: set[str] = set()  # jobs that listings leave out once: two commands at one moment
        self.log_of_new = ""
        self.when_read: Callable[[str], None] = lambda identity: None  # once a connection has what there is of a log
        self.url = ""

    def end(self, identity: str, status: str, exit_code: int | None = None, message: str = "") -> None:
        job = self.jobs[identity]
        job.status, job.exit_code, job.message = status, exit_code, message

    def submitted(self, identity: str) -> dict[str, Any]:
        return self.jobs[identity].request

    def _details(self, identity: str) -> dict[str, Any]:
        job = self.jobs[identity]
        ended = None if job.status in ("PENDING", "RUNNING") else int((job.began + 5) * 1000)
        return {
            "type": "SUBMISSION",
            "submission_id": identity,
            "status": job.status,
            "message": job.message,
            "driver_exit_code": job.exit_code,
            "entrypoint": job.request.get("entrypoint", ""),
            "start_time": int(job.began * 1000),
            "end_time": ended,
            "metadata": job.request.get("metadata"),
            "runtime_env": job.request.get("runtime_env"),
        }

    @web.middleware
    async def _check_token(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            known = "Authorization" in request.headers
            return web.Response(status=403 if known else 401, text="Unauthorized")
        return await handler(request)

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "4", "ray_version": "2.60.0", "ray_commit": "", "session_name": ""})

    async def _list(self, request: web.Request) -> web.Response:
        shown = [self._details(name) for name in self.jobs if name not in self.hidden]
        self.hidden.clear()
        return web.json_response(shown)

    async def _submit(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        identity = wanted.get("submission_id") or f"raysubmit_{len(self.jobs)}"
        if identity in self.jobs:
            return web.Response(status=500, text=f"Job with submission_id {identity} already exists.")
        self.jobs[identity] = FakeJob(request=wanted, log=self.log_of_new)
        return web.json_response({"job_id": identity, "submission_id": identity})

    async def _info(self, request: web.Request) -> web.Response:
        identity = request.match_info["job"]
        if identity not in self.jobs:
            return web.Response(status=404, text=f"Job {identity} does not exist")
        return web.json_response(self._details(identity))

    async def _stop(self, request: web.Request) -> web.Response:
        self.stopped.append(request.match_info["job"])
        self.end(request.match_info["job"], "STOPPED")
        return web.json_response({"stopped": True})

    async def _log(self, request: web.Request) -> web.Response:
        return web.json_response({"logs": self.jobs[request.match_info["job"]].log})

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        identity = request.match_info["job"]
        if identity not in self.jobs:
            return web.Response(status=404, text="no such job")
        job = self.jobs[identity]
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        cut = job.cuts.pop(0) if job.cuts else None
        job.connections += 1
        sent = 0
        while True:
            end = len(job.log) if cut is None else min(cut, len(job.log))
            for start in range(sent, end, 7):
                await socket.send_str(job.log[start : min(start + 7, end)])
            if sent < end or end == 0:
                self.when_read(identity)
            sent = end
            if cut is not None and sent == cut:
                assert request.transport is not None
                request.transport.abort()
                return socket
            if job.status not in ("PENDING", "RUNNING"):
                await socket.close()
                return socket
            await asyncio.sleep(0.02)

    async def _package(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.Response(status=404)
        self.packages.append(await request.read())
        return web.Response()

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._check_token], client_max_size=256 << 20)
        app.add_routes(
            [
                web.get("/api/version", self._version),
                web.get("/api/jobs/", self._list),
                web.post("/api/jobs/", self._submit),
                web.get("/api/jobs/{job}", self._info),
                web.post("/api/jobs/{job}/stop", self._stop),
                web.get("/api/jobs/{job}/logs", self._log),
                web.get("/api/jobs/{job}/logs/tail", self._tail),
                web.route("*", "/api/packages/{protocol}/{name}", self._package),
            ]
        )
        return app


@contextmanager
def serving() -> Iterator[FakeJobs]:
    """A server on a port of its own, in a thread."""
    fake, loop = FakeJobs(), asyncio.new_event_loop()

    async def start() -> web.AppRunner:
        runner = web.AppRunner(fake.application())
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, shutdown_timeout=0.1)
        await site.start()
        assert runner.addresses
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    runner = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
