"""The MLflow runs of one training run: one parent run, and one nested run per phase.

Every method may wait for the tracking server, and raises what MLflow raises. So only the background thread of `Tracker`
calls them, never the thread that trains.
"""

from __future__ import annotations

import logging
import math
import os
import re
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from configs.checks import leaves
from configs.schema import RunConfig
from orchestration.run.directory import RunDirectory

_ITEMS_PER_CALL, _METRICS_PER_CALL, _VALUE_CHARACTERS = 100, 1000, 6000
"""MLflow's limits: parameters or tags in one call, metrics in one call, characters of a parameter's value."""

Ids = dict[str, Any]


def tracking_uri(config: RunConfig) -> str:
    """Where the run is tracked: the config's URI, else MLFLOW_TRACKING_URI, else SQLite in the root of the runs."""
    chosen = config.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI", "")
    return chosen or _own_database(config)


def _own_database(config: RunConfig) -> str:
    return f"sqlite:///{_local_root(config)}/mlflow.db"


def _local_root(config: RunConfig) -> Path:
    """The root of the runs. A database needs a local disk, so the folder `runs` stands in for a remote root."""
    remote = "://" in config.root and not config.root.startswith("file://")
    return Path("runs" if remote else config.root.removeprefix("file://")).expanduser().absolute()


class MlflowRuns:
    """Makes, continues, fills and ends the MLflow runs of one training run. For use by one thread."""

    def __init__(self, config: RunConfig, ids: Mapping[str, Any] | None = None) -> None:
        """`ids` is `RunState.tracking` of a run to continue. Empty or None starts a new run."""
        self.uri = tracking_uri(config)
        self.ids: Ids = {"key": uuid.uuid4().hex, "parent": None, "phases": {}, **(ids or {})}
        self._config = config
        self._resumed = bool(ids)
        self._client: Any = None
        self._monitor: Any = None
        self._running: set[str] = set()
        self._earlier: dict[str, str] = {}  # a tag that names the parent run in another store, if it began there

    def connect(self) -> None:
        """Opens the parent run, if it is not open yet.

        That is the run in `ids`, or the run made under the same key before a restart, or a new run.
        """
        if self._client is not None:
            return
        logging.getLogger("alembic").setLevel(logging.WARNING)
        if self.uri.startswith("sqlite:///"):
            Path(self.uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        from mlflow import MlflowClient

        client = MlflowClient(self.uri)
        experiment = self._experiment(client)
        self.ids["experiment"] = experiment
        if self._resumed and self.ids["parent"] is None:
            self._find_runs_of_key(client, experiment)
        if not self._reopen_parent(client):
            tags = {"warpsmith.key": self.ids["key"], "mlflow.source.name": "warpsmith", **self._earlier}
            self.ids["parent"] = client.create_run(experiment, tags=tags, run_name=self._config.name).info.run_id
        self._send_parameters(client, self.ids["parent"])
        self._client = client
        self._start_system_metrics()

    def log_metrics(self, phase: str | None, values: Mapping[str, float], step: int, milliseconds: int) -> None:
        """Logs metrics of a step on the run of `phase` (None: the parent). `milliseconds`: since 1970.

        Leaves out values that are not finite, which not every store takes.
        """
        from mlflow.entities import Metric

        metrics = [
            Metric(_metric_name(name), float(value), milliseconds, step)
            for name, value in values.items()
            if math.isfinite(float(value))
        ]
        for chunk in _chunks(metrics, _METRICS_PER_CALL):
            self._client.log_batch(self._run_id(phase), metrics=chunk)

    def log_run_directory(self, run: RunDirectory) -> None:
        """Logs the resolved config, the report and the best programs as artifacts of the parent run."""
        for name in ("config.yaml", "report/index.html"):
            if run.storage.is_file(name):
                text = run.storage.read(name).decode("utf-8", "replace")
                self._client.log_text(self._run_id(None), text, name)
        if run.storage.is_folder("kernels"):
            folder = run.storage.fetch_folder("kernels")
            self._client.log_artifacts(self._run_id(None), str(folder), "kernels")

    def end_phase(self, phase: str, status: str) -> None:
        """Ends the nested run of a phase, if there is one."""
        if phase in self.ids["phases"]:
            self._client.set_terminated(self.ids["phases"][phase], status)
        self._running.discard(phase)

    def finish(self, status: str) -> None:
        """Ends the open nested runs and the parent run."""
        if self._monitor is not None:
            self._monitor.finish()
            self._monitor = None
        for phase in sorted(self._running):
            self.end_phase(phase, status)
        self._client.set_terminated(self.ids["parent"], status)

    def _experiment(self, client: Any) -> str:
        """The id of the configured experiment, which is made if it does not exist."""
        from mlflow.exceptions import MlflowException

        name = self._config.tracking.experiment
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            # A server decides itself where artifacts go. With our own database they go into the root of the runs.
            is_own = self.uri == _own_database(self._config)
            location = (_local_root(self._config) / "mlartifacts").as_uri() if is_own else None
            try:
                return str(client.create_experiment(name, artifact_location=location))
            except MlflowException:
                experiment = client.get_experiment_by_name(name)  # another run may have made it in between
                if experiment is None:
                    raise
        return str(experiment.experiment_id)

    def _reopen_parent(self, client: Any) -> bool:
        """Sets the parent run in `ids` to running again. False if `ids` names none.

        If this store does not have the run (it was moved or cleared, or the run goes on from a bundle), `ids` forgets
        it, and the run that takes its place names it in a tag.
        """
        from mlflow.exceptions import MlflowException

        if self.ids["parent"] is None:
            return False
        try:
            client.update_run(self.ids["parent"], status="RUNNING")
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            self._earlier = {"warpsmith.continues": self.ids["parent"]}
            self.ids.update(parent=None, phases={})
        return self.ids["parent"] is not None

    def _find_runs_of_key(self, client: Any, experiment: str) -> None:
        """Finds runs whose ids are in no commit, because a kill came after they were made and before the commit."""
        for run in client.search_runs([experiment], filter_string=f"tags.`warpsmith.key` = '{self.ids['key']}'"):
            phase = run.data.tags.get("warpsmith.phase")
            if phase is None:
                self.ids["parent"] = run.info.run_id
            else:
                self.ids["phases"].setdefault(phase, run.info.run_id)

    def _send_parameters(self, client: Any, run_id: str) -> None:
        """Logs the flattened config. MLflow's parameters cannot change: new values of a resumed run become tags."""
        from mlflow.entities import Param, RunTag

        logged = client.get_run(run_id).data.params
        values = {key: str(value)[:_VALUE_CHARACTERS] for key, value, _ in leaves(self._config)}
        new = [Param(key, value) for key, value in values.items() if key not in logged]
        for chunk in _chunks(new):
            client.log_batch(run_id, params=chunk)
        changed = [RunTag(f"resumed.{key}", value) for key, value in values.items() if logged.get(key, value) != value]
        for chunk in _chunks(changed):
            client.log_batch(run_id, tags=chunk)

    def _start_system_metrics(self) -> None:
        if not self._config.tracking.system_metrics or self._monitor is not None:
            return
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        self._monitor = SystemMetricsMonitor(self.ids["parent"], resume_logging=True, tracking_uri=self.uri)
        self._monitor.start()

    def _run_id(self, phase: str | None) -> str:
        """The run of a phase (None: the parent). Makes it, or opens it again, if necessary."""
        if phase is None:
            return str(self.ids["parent"])
        run_id = self.ids["phases"].get(phase)
        if run_id is None and self._resumed:
            self._find_runs_of_key(self._client, self.ids["experiment"])
            run_id = self.ids["phases"].get(phase)
        if run_id is None:
            tags = {
                "mlflow.parentRunId": self.ids["parent"],
                "mlflow.source.name": "warpsmith",
                "warpsmith.key": self.ids["key"],
                "warpsmith.phase": phase,
            }
            made = self._client.create_run(self.ids["experiment"], tags=tags, run_name=phase)
            run_id = self.ids["phases"][phase] = made.info.run_id
        elif phase not in self._running:
            self._client.update_run(run_id, status="RUNNING")
        self._running.add(phase)
        return str(run_id)


def _chunks(items: list[Any], size: int = _ITEMS_PER_CALL) -> Iterable[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _metric_name(name: str) -> str:
    """The name with only those characters that MLflow allows in a metric's name."""
    return re.sub(r"[^\w\-./ :]", "_", name)[:250]
