"""Shows a run in MLflow: one parent run, one nested run a phase, metrics by step, parameters, artifacts.

Everything is done by one background thread, so a slow or absent tracking server never delays training, let alone stops
it: the run directory holds the same figures.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from configs.checks import leaves
from configs.schema import RunConfig
from orchestration.run.directory import RunDirectory

_log = logging.getLogger(__name__)

DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
"""MLflow's own (120 s, 7 retries with growing pauses) would keep one call waiting for many minutes; and on start-up it
sets its loggers' levels itself."""

RETRY_SECONDS = 60.0
"""After a failure, nothing is sent for so long."""

PENDING = 10_000
"""Calls that wait for the server; beyond them, new ones are dropped."""

PARAMETERS_PER_CALL, METRICS_PER_CALL, VALUE_LENGTH = 100, 1000, 6000
"""MLflow's limits."""

Ids = dict[str, Any]


def tracking_uri(config: RunConfig) -> str:
    """Where the run is tracked: the config's URI, MLFLOW_TRACKING_URI, or SQLite in the root of the runs."""
    given = config.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI", "")
    return given or f"sqlite:///{_local_root(config)}/mlflow.db"


def _local_root(config: RunConfig) -> Path:
    """The root of the runs; a database needs a local disk, so for a remote root it is the folder `runs`."""
    remote = "://" in config.root and not config.root.startswith("file://")
    return Path("runs" if remote else config.root.removeprefix("file://")).expanduser().absolute()


class Tracker:
    """Reports a run to MLflow. Every method returns at once; `close` waits, within its bound, for what is pending.

    A failure to reach the server is logged as one warning; sending is tried again a minute later. As a context
    manager it closes with the status that the exit deserves: FINISHED, KILLED (Ctrl-C) or FAILED.
    """

    def __init__(self, config: RunConfig, ids: Mapping[str, Any] | None = None) -> None:
        """`ids` is `RunState.tracking` of a run to continue; empty or None starts a new one."""
        self._config = config
        self._ids: Ids = {"key": uuid.uuid4().hex, "parent": None, "phases": {}, **(ids or {})}
        self._resumed = bool(ids)
        self._uri = tracking_uri(config)
        self._client: Any = None
        self._monitor: Any = None
        self._running: set[str] = set()
        self._retry_at = 0.0
        self._warned = False
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(PENDING)
        self._thread: threading.Thread | None = None
        if config.tracking.enabled:
            for name, value in DEFAULTS.items():
                os.environ.setdefault(name, value)
            # MLflow takes seconds to import and its database to be made; the run starts meanwhile.
            self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)
            self._thread.start()
            self._submit(lambda: None)

    @property
    def ids(self) -> Ids:
        """What `RunState.tracking` must hold for a restart to continue the same MLflow runs; plain JSON.

        Complete from the start: runs that are not made yet are found again by the key.
        """
        return {**self._ids, "phases": dict(self._ids["phases"])} if self._config.tracking.enabled else {}

    def log_metrics(self, phase: str | None, metrics: Mapping[str, float], step: int) -> None:
        """Metrics of a step, on the nested run of `phase` (None: on the parent run)."""
        now, values = int(time.time() * 1000), dict(metrics)
        self._submit(lambda: self._send_metrics(phase, values, step, now))

    def end_phase(self, phase: str, status: str = "FINISHED") -> None:
        """Ends the nested run of a phase; logging to it later opens it again."""
        self._submit(lambda: self._terminate(phase, status))

    def log_artifacts(self, path: Path, to: str | None = None) -> None:
        """A file, or all of a folder, as artifacts of the parent run under the folder `to`."""
        self._submit(lambda: self._send_artifacts(path, to))

    def log_run_directory(self, run: RunDirectory) -> None:
        """The resolved config, the report and the best programs as artifacts of the parent run."""

        def send() -> None:
            for name in ("config.yaml", "report/index.html"):
                if run.storage.is_file(name):
                    text = run.storage.read(name).decode("utf-8", "replace")
                    self._client.log_text(self._run_id(None), text, name)
            if run.storage.is_folder("kernels"):
                self._send_artifacts(run.storage.fetch_folder("kernels"), "kernels")

        self._submit(send)

    def close(self, status: str = "FINISHED", timeout: float = 60.0) -> None:
        """Ends all runs with a status (FINISHED, KILLED, FAILED) and waits up to `timeout` seconds for it."""
        if self._thread is None:
            return
        self._submit(lambda: self._finish(status))
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

    # Below: on the background thread alone.

    def _submit(self, job: Callable[[], None]) -> None:
        if self._thread is None:
            return
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            self._warn("too many calls are waiting; new ones are dropped")

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if time.monotonic() < self._retry_at:
                continue
            try:
                self._connect()
                job()
            except Exception as error:  # noqa: BLE001 - whatever a tracking store throws, training goes on
                self._retry_at = time.monotonic() + RETRY_SECONDS
                self._warn(" ".join(str(error).split())[:300])

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "MLflow at %s: %s. The run goes on, and its run directory holds every metric; check tracking.uri",
                _without_password(self._uri),
                reason,
            )

    def _connect(self) -> None:
        """Opens the parent run: the known one, the one made under our key before a restart, or a new one."""
        if self._client is not None:
            return
        logging.getLogger("alembic").setLevel(logging.WARNING)
        if self._uri.startswith("sqlite:///"):
            Path(self._uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        from mlflow import MlflowClient

        client = MlflowClient(self._uri)
        experiment = self._experiment(client)
        self._ids["experiment"] = experiment
        if self._resumed and self._ids["parent"] is None:
            self._find_again(client, experiment)
        if not self._reopened(client):
            tags = {"warpsmith.key": self._ids["key"], "mlflow.source.name": "warpsmith"}
            self._ids["parent"] = client.create_run(experiment, tags=tags, run_name=self._config.name).info.run_id
        self._send_parameters(client, self._ids["parent"])
        self._client = client
        self._watch_system()

    def _reopened(self, client: Any) -> bool:
        """Whether the known parent run goes on. One that this store has not (it was moved or cleared) is forgotten."""
        from mlflow.exceptions import MlflowException

        if self._ids["parent"] is None:
            return False
        try:
            client.update_run(self._ids["parent"], status="RUNNING")
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            self._ids.update(parent=None, phases={})
        return self._ids["parent"] is not None

    def _experiment(self, client: Any) -> str:
        from mlflow.exceptions import MlflowException

        name = self._config.tracking.experiment
        found = client.get_experiment_by_name(name)
        if found is None:
            # A server decides itself where artifacts go; beside our own database they go into the root of the runs.
            ours = self._uri == f"sqlite:///{_local_root(self._config)}/mlflow.db"
            location = (_local_root(self._config) / "mlartifacts").as_uri() if ours else None
            try:
                return str(client.create_experiment(name, artifact_location=location))
            except MlflowException:
                found = client.get_experiment_by_name(name)  # another run may have made it in between
                if found is None:
                    raise
        return str(found.experiment_id)

    def _find_again(self, client: Any, experiment: str) -> None:
        """Finds the runs that were made before a kill came between making them and committing their ids."""
        for run in client.search_runs([experiment], filter_string=f"tags.`warpsmith.key` = '{self._ids['key']}'"):
            phase = run.data.tags.get("warpsmith.phase")
            if phase is None:
                self._ids["parent"] = run.info.run_id
            else:
                self._ids["phases"].setdefault(phase, run.info.run_id)

    def _send_parameters(self, client: Any, run_id: str) -> None:
        """The flattened config. Parameters cannot change in MLflow: a resumed run's new values become tags."""
        from mlflow.entities import Param, RunTag

        standing = client.get_run(run_id).data.params
        wanted = {key: str(value)[:VALUE_LENGTH] for key, value, _ in leaves(self._config)}
        new = [Param(key, value) for key, value in wanted.items() if key not in standing]
        for chunk in _chunks(new):
            client.log_batch(run_id, params=chunk)
        changed = [
            RunTag(f"resumed.{key}", value) for key, value in wanted.items() if standing.get(key, value) != value
        ]
        for chunk in _chunks(changed):
            client.log_batch(run_id, tags=chunk)

    def _watch_system(self) -> None:
        if not self._config.tracking.system_metrics or self._monitor is not None:
            return
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        self._monitor = SystemMetricsMonitor(self._ids["parent"], resume_logging=True, tracking_uri=self._uri)
        self._monitor.start()

    def _run_id(self, phase: str | None) -> str:
        """The run of a phase (None: the parent), made or opened again as needed."""
        if phase is None:
            return str(self._ids["parent"])
        known = self._ids["phases"].get(phase)
        if known is None and self._resumed:
            self._find_again(self._client, self._ids["experiment"])
            known = self._ids["phases"].get(phase)
        if known is None:
            tags = {
                "mlflow.parentRunId": self._ids["parent"],
                "mlflow.source.name": "warpsmith",
                "warpsmith.key": self._ids["key"],
                "warpsmith.phase": phase,
            }
            made = self._client.create_run(self._ids["experiment"], tags=tags, run_name=phase)
            known = self._ids["phases"][phase] = made.info.run_id
        elif phase not in self._running:
            self._client.update_run(known, status="RUNNING")
        self._running.add(phase)
        return str(known)

    def _send_metrics(self, phase: str | None, values: Mapping[str, float], step: int, now: int) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(_metric_name(name), float(value), now, step)
            for name, value in values.items()
            if math.isfinite(float(value))
        ]
        for chunk in _chunks(metrics, METRICS_PER_CALL):
            self._client.log_batch(self._run_id(phase), metrics=chunk)

    def _send_artifacts(self, path: Path, to: str | None) -> None:
        send = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
        send(self._run_id(None), str(path), to)

    def _terminate(self, phase: str, status: str) -> None:
        if phase in self._ids["phases"]:
            self._client.set_terminated(self._ids["phases"][phase], status)
        self._running.discard(phase)

    def _finish(self, status: str) -> None:
        if self._monitor is not None:
            self._monitor.finish()
            self._monitor = None
        for phase in sorted(self._running):
            self._terminate(phase, status)
        self._client.set_terminated(self._ids["parent"], status)


def _chunks(items: list[Any], size: int = PARAMETERS_PER_CALL) -> Iterable[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _metric_name(name: str) -> str:
    """MLflow allows letters, digits and a few signs in a metric's name."""
    return re.sub(r"[^\w\-./ :]", "_", name)[:250]


def _without_password(uri: str) -> str:
    return re.sub(r"//[^@/]*@", "//***@", uri)
