"""The MLflow runs of one training run: one parent run, and one nested run per phase.

Every method may wait for the tracking server, and raises what MLflow raises. So only the background thread of `Sender`
calls them, never the thread that trains.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from configs.checks import leaves
from configs.schema import RunConfig
from orchestration.run.directory import RunDirectory
from orchestration.run.judged_rollouts import drawn, read_judged
from orchestration.run.mlflow_details import log_samples, log_tasks, run_tags
from orchestration.run.mlflow_traces import Step, log_traces

METRICS_PER_CALL = 1000
_ITEMS_PER_CALL, _VALUE_CHARACTERS = 100, 6000
"""MLflow's limits: metrics in one call, parameters or tags in one call, characters of a parameter's value."""

_KEY, _PHASE = "warpsmith.key", "warpsmith.phase"  # tags: the training run, and the phase of a nested run
_STAGE = "warpsmith.stage"  # tag of a policy: the phase that it comes from, or `base`

Ids = dict[str, Any]


class Point(NamedTuple):
    """One value of a metric. `time`: milliseconds since 1970."""

    name: str
    value: float
    step: int
    time: int


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
    """Makes, continues, fills and ends the MLflow runs of one training run. For use by one thread.

    Every method may be called again after it failed or after a kill, with the same arguments, and changes nothing that
    it has done already. Times are in milliseconds since 1970.
    """

    def __init__(self, config: RunConfig, ids: Mapping[str, Any] | None = None) -> None:
        """`ids` is `RunState.tracking` of a run to continue. Empty or None starts a new run."""
        self.uri = tracking_uri(config)
        self.ids: Ids = {"key": uuid.uuid4().hex, "parent": None, "phases": {}, "policies": {}, **(ids or {})}
        self.ids.update({name: dict(self.ids[name]) for name in ("phases", "policies")})
        self._config = config
        self._client: Any = None
        self._running: set[str] = set()
        self._earlier: dict[str, str] = {}  # a tag that names the parent run in another store, if it began there

    def disconnect(self) -> None:
        """After a failure: the next call looks again which runs the store has."""
        self._client = None
        self._running.clear()

    def begin(self, parameters: Mapping[str, str], completed: Collection[str], milliseconds: int) -> None:
        """A process begins or continues the run: it is RUNNING, and its phases in `completed` are FINISHED.

        MLflow's parameters cannot change: new values of a resumed run become tags.
        """
        self._open(parameters, milliseconds)
        self._client.update_run(self.ids["parent"], status="RUNNING")
        if completed:
            for run in self._find_runs():
                if run.info.status == "RUNNING" and run.data.tags.get(_PHASE) in completed:
                    self._client.set_terminated(run.info.run_id, "FINISHED", milliseconds)
        self._send_parameters(self._client, parameters)
        self._set_tags(self._client, run_tags(self._config))

    def log_metrics(self, phase: str | None, points: Sequence[Point], *, in_doubt: bool) -> None:
        """Logs metrics on the run of `phase` (None: the parent).

        `in_doubt`: an earlier call may have logged some of them. Then MLflow is asked first, since a store of files
        takes the same point twice. A database does not.
        """
        from mlflow.entities import Metric

        run_id = self._run_id(phase, points[0].time)
        if in_doubt:
            points = self._not_logged(run_id, points)
        metrics = [Metric(metric_name(point.name), point.value, point.time, point.step) for point in points]
        for chunk in _chunks(metrics, METRICS_PER_CALL):
            self._client.log_batch(run_id, metrics=chunk)

    def log_run_directory(self, run: RunDirectory, milliseconds: int) -> None:
        """Logs the resolved config, the report and the best programs as artifacts of the parent run."""
        run_id = self._run_id(None, milliseconds)
        for name in ("config.yaml", "report/index.html"):
            if run.storage.is_file(name):
                text = run.storage.read(name).decode("utf-8", "replace")
                self._client.log_text(run_id, text, name)
        if run.storage.is_folder("kernels"):
            folder = run.storage.fetch_folder("kernels")
            self._client.log_artifacts(run_id, str(folder), "kernels")

    def log_tasks(self, sets: Sequence[Mapping[str, Any]], milliseconds: int) -> None:
        """Logs sets of tasks as inputs of the parent run (`mlflow_details.log_tasks`)."""
        log_tasks(self._client_of(milliseconds), self.ids["parent"], sets)

    def log_samples(self, run: RunDirectory, phase: str, step: int, milliseconds: int) -> None:
        """Logs the samples of a step as a table of the parent run."""
        with suppress(FileNotFoundError):
            rollouts = read_judged(run, phase, step, self._config.evaluator.arch)
            log_samples(self._client_of(milliseconds), self.ids["parent"], phase, rollouts)

    def log_rollouts(self, run: RunDirectory, phase: str, step: int, milliseconds: int) -> None:
        """Logs some rollouts of a step as traces of the phase's run: the best one, and others at random."""
        with suppress(FileNotFoundError):
            rollouts = read_judged(run, phase, step, self._config.evaluator.arch)
            chosen = drawn(rollouts, self._config.tracking.rollouts, f"{phase}/{step}")
            self._open(None, milliseconds)
            if phase not in self.ids["phases"]:
                self._run_id(phase, milliseconds)
            run_id = self.ids["phases"][phase]  # as it stands: a phase that is over stays so
            log_traces(
                self.uri, Step(self.ids["key"], self.ids["experiment"], run_id, phase, step, milliseconds), chosen
            )

    def log_policy(self, stage: str, about: Mapping[str, str], milliseconds: int) -> None:
        """Registers the policy of a stage as a model of MLflow's, without its weights, unless there is one.

        `about`: its parameters, as where its weights are."""
        client = self._client_of(milliseconds)
        if stage not in self.ids["policies"]:
            wanted = f"tags.`{_KEY}` = '{self.ids['key']}' AND tags.`{_STAGE}` = '{stage}'"
            found = client.search_logged_models([self.ids["experiment"]], wanted)
            made = (
                found[0]
                if found
                else client.create_logged_model(
                    self.ids["experiment"],
                    metric_name(f"{self._config.name}-{stage}").replace("/", "-"),
                    self.ids["phases"].get(stage, self.ids["parent"]),
                    {_KEY: self.ids["key"], _STAGE: stage},
                    dict(about),
                    "policy",
                )
            )
            client.finalize_logged_model(made.model_id, "READY")
            self.ids["policies"][stage] = made.model_id

    def log_scores(
        self, stage: str, about: Mapping[str, str], values: Mapping[str, float], step: int, milliseconds: int
    ) -> None:
        """Logs the figures of an assessment on the policy of its stage and on a nested run: that of the phase that it
        follows, or one of its own, as for the policy before all phases."""
        from mlflow.entities import Metric

        self._open(None, milliseconds)
        if is_own := stage not in self.ids["phases"]:
            self._run_id(stage, milliseconds)
        self.log_policy(stage, about, milliseconds)
        run_id, model = self.ids["phases"][stage], self.ids["policies"][stage]
        points = self._not_logged(run_id, [Point(name, value, step, milliseconds) for name, value in values.items()])
        metrics = [Metric(metric_name(name), value, time, step, model_id=model) for name, value, step, time in points]
        for chunk in _chunks(metrics, METRICS_PER_CALL):
            self._client.log_batch(run_id, metrics=chunk)
        if is_own:
            self.end_phase(stage, milliseconds)

    def end_phase(self, phase: str, milliseconds: int) -> None:
        """Ends the nested run of a phase, if there is one, as FINISHED."""
        self._open(None, milliseconds)
        if phase not in self.ids["phases"]:
            self._find_runs()
        if phase in self.ids["phases"]:
            self._client.set_terminated(self.ids["phases"][phase], "FINISHED", milliseconds)
        self._running.discard(phase)

    def finish(self, status: str, milliseconds: int, *, only_running: bool = False) -> None:
        """Ends the nested runs that are RUNNING, whoever opened them, and the parent run.

        `only_running`: the parent, too, only if it is RUNNING.
        """
        self._open(None, milliseconds)
        for run in self._find_runs():
            if run.info.status == "RUNNING" and run.info.run_id != self.ids["parent"]:
                self._client.set_terminated(run.info.run_id, status, milliseconds)
        self._running.clear()
        if not only_running or self._client.get_run(self.ids["parent"]).info.status == "RUNNING":
            self._client.set_terminated(self.ids["parent"], status, milliseconds)

    def deleted(self, phase: str | None) -> str:
        """The id of the parent or phase's run if it is deleted, for which MLflow refuses everything; else empty."""
        self._open(None, None)
        for run_id in (self.ids["parent"], self.ids["phases"].get(phase)):
            if run_id is not None and self._client.get_run(run_id).info.lifecycle_stage != "active":
                return str(run_id)
        return ""

    def _client_of(self, milliseconds: int) -> Any:
        self._open(None, milliseconds)
        return self._client

    def _open(self, parameters: Mapping[str, str] | None, milliseconds: int | None) -> None:
        """Connects, if necessary, and finds the parent run, or makes it.

        That is the run in `ids`, or the run made under the same key before a restart or by a call without an answer,
        or a new run. If this store does not have the run in `ids` (it was moved or cleared, or the run goes on from a
        bundle), the run that takes its place names it in a tag.
        """
        if self._client is not None:
            return
        logging.getLogger("alembic").setLevel(logging.WARNING)
        if self.uri.startswith("sqlite:///"):
            Path(self.uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        from mlflow import MlflowClient

        client = MlflowClient(self.uri)
        self.ids["experiment"] = self._experiment(client)
        if self.ids["parent"] is not None and not _has_run(client, self.ids["parent"]):
            self._earlier = {"warpsmith.continues": self.ids["parent"]}
            self.ids.update(parent=None, phases={}, policies={})
        if self.ids["parent"] is None:
            self._find_runs(client)
        if self.ids["parent"] is None:
            tags = {_KEY: self.ids["key"], "mlflow.source.name": "warpsmith", **self._earlier}
            made = client.create_run(self.ids["experiment"], milliseconds, tags, self._config.name)
            self.ids["parent"] = made.info.run_id
        self._send_parameters(client, run_parameters(self._config) if parameters is None else parameters, first=True)
        self._client = client

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

    def _find_runs(self, client: Any = None) -> list[Any]:
        """The runs of this training run in the store. Those that `ids` does not name, it names from now on: their
        making came after the last commit, or was not answered."""
        wanted = f"tags.`{_KEY}` = '{self.ids['key']}'"
        found: list[Any] = (client or self._client).search_runs([self.ids["experiment"]], wanted)
        for run in sorted(found, key=lambda run: run.info.start_time):
            phase = run.data.tags.get(_PHASE)
            if phase is not None:
                self.ids["phases"].setdefault(phase, run.info.run_id)
            elif self.ids["parent"] is None:
                self.ids["parent"] = run.info.run_id
        return found

    def _send_parameters(self, client: Any, values: Mapping[str, str], *, first: bool = False) -> None:
        """Logs parameters, and tags for changed values. `first`: only on a run that has no parameters yet."""
        from mlflow.entities import Param

        run_id = self.ids["parent"]
        logged = client.get_run(run_id).data.params
        if first and logged:
            return
        new = [Param(key, value) for key, value in values.items() if key not in logged]
        for chunk in _chunks(new):
            client.log_batch(run_id, params=chunk)
        changed = {f"resumed.{key}": value for key, value in values.items() if logged.get(key, value) != value}
        self._set_tags(client, changed)

    def _set_tags(self, client: Any, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        for chunk in _chunks([RunTag(name, value) for name, value in tags.items()]):
            client.log_batch(self.ids["parent"], tags=chunk)

    def _run_id(self, phase: str | None, milliseconds: int) -> str:
        """The run of a phase (None: the parent). Makes it, or opens it again, if necessary."""
        self._open(None, milliseconds)
        if phase is None:
            return str(self.ids["parent"])
        if phase not in self.ids["phases"]:
            self._find_runs()
        if phase not in self.ids["phases"]:
            tags = {
                "mlflow.parentRunId": self.ids["parent"],
                "mlflow.source.name": "warpsmith",
                _KEY: self.ids["key"],
                _PHASE: phase,
            }
            made = self._client.create_run(self.ids["experiment"], milliseconds, tags, phase)
            self.ids["phases"][phase] = made.info.run_id
        elif phase not in self._running:
            self._client.update_run(self.ids["phases"][phase], status="RUNNING")
        self._running.add(phase)
        return str(self.ids["phases"][phase])

    def _not_logged(self, run_id: str, points: Sequence[Point]) -> list[Point]:
        """The points that a run does not have yet.

        A run's data name the latest point of each metric: that of the last step, and of the last time among these. So
        a metric's history is asked for only if it has later steps, as after a resume, which repeats some.
        """
        latest = {metric.key: metric for metric in self._client.get_run(run_id).data.to_proto().metrics}
        histories: dict[str, set[tuple[int, int]]] = {}
        new = []
        for point in points:
            name = metric_name(point.name)
            last = latest.get(name)
            if last is not None and last.step > point.step and name not in histories:
                history = self._client.get_metric_history(run_id, name)
                histories[name] = {(item.step, item.timestamp) for item in history}
            is_there = last is not None and last.step == point.step and last.timestamp >= point.time
            if not is_there and (point.step, point.time) not in histories.get(name, ()):
                new.append(point)
        return new


def run_parameters(config: RunConfig) -> dict[str, str]:
    """The flattened config, as MLflow's parameters."""
    return {key: str(value)[:_VALUE_CHARACTERS] for key, value, _ in leaves(config)}


def _has_run(client: Any, run_id: str) -> bool:
    from mlflow.exceptions import MlflowException

    try:
        client.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return False
    return True


def _chunks(items: list[Any], size: int = _ITEMS_PER_CALL) -> Iterable[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def metric_name(name: str) -> str:
    """The name with only those characters that MLflow allows in a metric's name."""
    return re.sub(r"[^\w\-./ :]", "_", name)[:250]
