"""Reports a run to MLflow: metrics by step, parameters, artifacts.

One background thread does all of it. So a slow or absent tracking server never delays training, let alone stops it. The
run directory holds the same figures.
"""

# Not MLflow's asynchronous logging (3.17): it covers neither making and ending runs nor artifacts, its queue has no
# bound, and flushing it has no time-out, so an absent server would stop the run.

from __future__ import annotations

import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from configs.schema import RunConfig
from orchestration.run.directory import RunDirectory
from orchestration.run.mlflow_runs import Ids, MlflowRuns

_log = logging.getLogger(__name__)

DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
"""Environment variables for MLflow. Its own values (120 s, 7 retries with growing pauses) would keep one call waiting
for many minutes. It sets the levels of its loggers when it is imported."""

RETRY_SECONDS = 60.0
"""After a failure, nothing is sent for this long."""

PENDING = 10_000
"""Calls that may wait for the server. Further calls are dropped."""


class Tracker:
    """Reports a run to MLflow. Every method returns at once, except `close`, which waits within its time limit.

    A failure to reach the server is logged as one warning. Sending starts again a minute later. As a context manager,
    it closes with a status that tells how the block ended: FINISHED, KILLED (Ctrl-C) or FAILED.
    """

    def __init__(self, config: RunConfig, ids: Mapping[str, Any] | None = None) -> None:
        """`ids` is `RunState.tracking` of a run to continue. Empty or None starts a new run."""
        self._enabled = config.tracking.enabled
        self._runs = MlflowRuns(config, ids)
        self._retry_at = 0.0
        self._warned = False
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(PENDING)
        self._thread: threading.Thread | None = None
        if self._enabled:
            for name, value in DEFAULTS.items():
                os.environ.setdefault(name, value)
            # MLflow takes seconds to import and to make its database. The run starts meanwhile.
            self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)
            self._thread.start()
            self._submit(lambda: None)

    @property
    def ids(self) -> Ids:
        """Plain JSON that `RunState.tracking` must hold, so that a restart continues the same MLflow runs.

        Complete from the start: runs that are not made yet are found again by the key.
        """
        return {**self._runs.ids, "phases": dict(self._runs.ids["phases"])} if self._enabled else {}

    def log_metrics(self, phase: str | None, metrics: Mapping[str, float], step: int) -> None:
        """Logs metrics of a step on the nested run of `phase` (None: on the parent run)."""
        now, values = int(time.time() * 1000), dict(metrics)
        self._submit(lambda: self._runs.log_metrics(phase, values, step, now))

    def end_phase(self, phase: str) -> None:
        """Ends the nested run of a phase. Logging to it later opens it again."""
        self._submit(lambda: self._runs.end_phase(phase, "FINISHED"))

    def log_run_directory(self, run: RunDirectory) -> None:
        """Logs the resolved config, the report and the best programs as artifacts of the parent run."""
        self._submit(lambda: self._runs.log_run_directory(run))

    def close(self, status: str = "FINISHED", timeout: float = 60.0) -> None:
        """Ends all runs with a status (FINISHED, KILLED, FAILED) and waits up to `timeout` seconds for that."""
        if self._thread is None:
            return
        self._submit(lambda: self._runs.finish(status))
        try:
            self._jobs.put(None, timeout=1.0)
        except queue.Full:
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._warn(f"not done after {timeout:.0f} s; left behind")
        self._thread = None

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt | SystemExit):
            self.close("KILLED", timeout=10.0)
        else:
            self.close("FINISHED" if kind is None else "FAILED")

    def _submit(self, job: Callable[[], None]) -> None:
        if self._thread is None:
            return
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            self._warn("too many calls are waiting; new ones are dropped")

    def _work(self) -> None:
        """The background thread: runs the submitted jobs in order, until it gets None."""
        while (job := self._jobs.get()) is not None:
            if time.monotonic() < self._retry_at:
                continue
            try:
                self._runs.connect()
                job()
            except Exception as error:  # noqa: BLE001 - whatever a tracking store raises, training goes on
                self._retry_at = time.monotonic() + RETRY_SECONDS
                self._warn(" ".join(str(error).split())[:300])

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "MLflow at %s: %s. The run goes on, and its run directory holds every metric; check tracking.uri",
                _without_password(self._runs.uri),
                _without_password(reason),  # errors of HTTP requests quote the URI
            )


def _without_password(text: str) -> str:
    """The text with `***` in place of the user and password in its URIs."""
    return re.sub(r"//[^@/]*@", "//***@", text)
