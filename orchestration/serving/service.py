"""The service as a whole: its ledger, its desk, the judge's thread and the HTTP server, over started pools."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from configs.schema import RunConfig
from evaluators.records import Task
from orchestration.fleet.arch_pools import ArchPools
from orchestration.run.errors import RunDirectoryError
from orchestration.serving.api import Api
from orchestration.serving.clients import Clients
from orchestration.serving.desk import Desk, settler
from orchestration.serving.judge import Judge
from orchestration.serving.ledger import KEPT, Ledger
from orchestration.serving.metrics import Metrics
from orchestration.serving.records import settings_digest

_VERSIONS_SECONDS = 120.0
_KEEP_ALIVE = 75.0  # seconds that a connection may be idle


class ServiceFailed(Exception):
    """The service cannot go on. What it has accepted is on disk; the same command goes on with it."""


class Service:
    """Serves the verdicts of pools. `folder`: where it keeps the ledger and, in `store`, what builders and evaluators
    keep. `kept`: how many verdicts are kept."""

    def __init__(
        self,
        config: RunConfig,
        tasks: Mapping[str, Task],
        pools: ArchPools,
        folder: Path,
        clients: Clients,
        *,
        cpu_look: bool = False,
        kept: int = KEPT,
    ) -> None:
        self._config, self._tasks, self._clients, self._folder = config, tasks, clients, folder
        self._pools, self._kept = pools, kept
        self._judge = Judge(config, tasks, pools, folder / "store", cpu_look=cpu_look)
        self._failure: Exception | None = None

    async def run(self, host: str, port: int, announce: Callable[[str], None]) -> None:
        """Serves until SIGTERM or SIGINT. `announce` hears the address once requests are answered.

        Raises ServiceFailed if no evaluator can be kept alive, or the disk fails, and RunDirectoryError if the ledger
        or the address cannot be used.
        """
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def fail(error: Exception) -> None:
            self._failure = self._failure or error
            loop.call_soon_threadsafe(ended.set)

        settings = settings_digest(_settings(self._config, _versions(self._pools)))
        with ExitStack() as stack:
            ledger = self._open_ledger()
            stack.callback(ledger.close)
            self._judge.resume(ledger, settings)
            desk = Desk(self._tasks, ledger, self._judge, self._clients, settings, fail)
            metrics = Metrics(lambda: desk.waiting, lambda: desk.judging, lambda: self._judge.evaluators_ready)
            desk.on_settled = metrics.judged
            stack.callback(self._judge.close)
            self._judge.start(settler(desk, ledger, loop, fail), fail)
            desk.resume()
            about = {"arch": self._config.evaluator.arch, "preset": self._config.evaluator.preset}
            api = Api(desk, ledger, self._clients, self._tasks, metrics, about, lambda: self._judge.evaluators_ready)
            await _serve(api.application(), host, port, announce, desk, ended)
        if self._failure is not None:
            raise ServiceFailed(str(self._failure) or type(self._failure).__name__)

    def _open_ledger(self) -> Ledger:
        path = self._folder / "ledger" / "requests.sqlite"
        try:
            return Ledger(path, self._kept)
        except (OSError, sqlite3.Error) as error:
            raise RunDirectoryError(f"{path} cannot be used ({error}); give another --folder") from None


async def _serve(
    app: web.Application, host: str, port: int, announce: Callable[[str], None], desk: Desk, ended: asyncio.Event
) -> None:
    """Answers until `ended`, or a signal."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with AsyncExitStack() as stack:
        runner = web.AppRunner(app, access_log=None, keepalive_timeout=_KEEP_ALIVE, shutdown_timeout=5.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise RunDirectoryError(f"--host {host} --port {port}: cannot listen there ({error.strerror})") from None
        bound = runner.addresses[0][1]
        announce(f"http://{f'[{host}]' if ':' in host else host}:{bound}")
        await ended.wait()
        desk.closing.set()  # whoever waits is told to ask again


def _versions(pools: ArchPools) -> list[dict[str, str]]:
    """The software and hardware of the evaluators that are ready, each kind once."""
    found = pools.evaluators.broadcast("versions", timeout=_VERSIONS_SECONDS)
    return sorted({msgspec.json.encode(each, order="sorted"): each for each in found}.values(), key=str)


def _settings(config: RunConfig, versions: list[dict[str, str]]) -> dict[str, Any]:
    """What a verdict depends on beside program and task."""
    evaluator = config.evaluator
    return {
        "versions": versions,
        "arch": evaluator.arch,
        "preset": evaluator.preset,
        "baselines": sorted(evaluator.baselines),
        "require_shapes": evaluator.require_shapes,
        "strict": evaluator.strict,
        "limits": asdict(evaluator.limits),
        "guarded": config.guard.enabled,
    }
