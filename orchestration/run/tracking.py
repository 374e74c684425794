"""Reports a run to MLflow: metrics by step, parameters, artifacts, and how it stands.

Everything is recorded in the run's directory first, and a background thread sends it. So a slow or absent tracking
server never delays training, let alone stops it, and MLflow has it all in the end.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from configs.schema import RunConfig
from evaluators.records import Task, digest_of
from learners.room import DiskFull
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import LeaseLost
from orchestration.run.mlflow_runs import Ids, MlflowRuns, run_parameters
from orchestration.run.sender import (
    ARTIFACTS,
    BEGIN,
    END,
    METRICS,
    PHASE_END,
    POLICY,
    ROLLOUTS,
    SAMPLES,
    SCORES,
    TASKS,
    Sender,
    known_runs,
)
from orchestration.run.spool import Spool
from orchestration.run.state import RunState
from orchestration.run.system_metrics import SystemMetrics

_log = logging.getLogger(__name__)

DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
"""Environment variables for MLflow. Its own values (120 s, 7 retries, pauses that grow or that the server asks for)
would keep one call waiting for many minutes. The sender has pauses of its own. MLflow sets the levels of its loggers
when it is imported."""

FLUSH_SECONDS, FLUSH_SECONDS_KILLED = 60.0, 10.0
"""The longest wait for MLflow at the end of a run, and after Ctrl-C."""

ASSESSMENT = "assess/"
"""Prefix of the figures of assessments."""

_SPARED = 0.5  # the part of the spool that system metrics may fill
_ALWAYS = math.inf


@dataclass(frozen=True)
class TaskSet:
    """Tasks that a run works with. `context`: `training` or `held_out`. `source`: `tasks.source`. `digest`: of all of
    them. `profile`: how many there are, in all and by level."""

    name: str
    context: str
    source: str
    digest: str
    profile: Mapping[str, int]

    @classmethod
    def of(cls, name: str, context: str, source: str, tasks: Sequence[Task]) -> TaskSet:
        """The set of these tasks."""
        levels = Counter(f"level {task.level}" for task in tasks)
        digest = digest_of("".join(sorted(task.id + task.digest for task in tasks)))
        return cls(name, context, source, digest, {"tasks": len(tasks), **levels})


class Tracker:
    """Reports a run to MLflow. Every method returns at once, except `close`, which waits within its time limit.

    What a method records survives a kill, and is sent by this process or by a later one. A failure to reach the server
    is logged as a warning. As a context manager, it closes with a status that tells how the block ended: FINISHED,
    KILLED (Ctrl-C) or FAILED; after a LeaseLost it says nothing.
    """

    def __init__(
        self,
        config: RunConfig,
        run: RunDirectory,
        ids: Mapping[str, Any] | None = None,
        completed: Collection[str] = (),
    ) -> None:
        """`ids` is `RunState.tracking` of a run to continue. Empty or None starts a new run. `completed`: the phases
        that are over. The caller holds the run's lock."""
        self._config = config
        self._runs: MlflowRuns | None = None
        self._sender: Sender | None = None
        self._is_full = False
        self.was_stopped = False  # the run ends as asked from outside, and is not over
        if not config.tracking.enabled:
            return
        _set_defaults()
        self._runs = MlflowRuns(config, _newest_ids(run, ids))
        self._began = self._runs.ids.setdefault("began", time.time_ns() // 1_000_000)
        self._spool = Spool(run.storage)
        self._monitor = SystemMetrics(self._log_system_metrics)
        when_ready = self._monitor.start if config.tracking.system_metrics else lambda: None
        self._sender = Sender(run, self._spool, self._runs, when_ready)
        self._add(BEGIN, {"parameters": run_parameters(config), "completed": sorted(completed)}, _ALWAYS)
        self._sender.start()

    @property
    def ids(self) -> Ids:
        """Plain JSON that `RunState.tracking` must hold, so that a restart continues the same MLflow runs.

        Complete from the start: runs that are not made yet are found again by the key.
        """
        if self._runs is None:
            return {}
        ids = self._runs.ids
        return {**ids, "phases": dict(ids["phases"]), "policies": dict(ids["policies"])}

    def log_metrics(self, phase: str | None, metrics: Mapping[str, float], step: int) -> None:
        """Logs metrics of a step on the nested run of `phase` (None: on the parent run). Raises DiskFull.

        Leaves out values that are not finite, which not every store takes.
        """
        self._add_metrics(phase, metrics, step, ends_the_run=True)

    def log_tasks(self, sets: Sequence[TaskSet]) -> None:
        """Logs which tasks the run has, as MLflow's inputs of the parent run."""
        self._add(TASKS, {"sets": [asdict(one) for one in sets if one.profile["tasks"]]})

    def log_rollouts(self, phase: str, step: int) -> None:
        """Logs some rollouts of a step that is stored in the run's directory, as traces of the phase's run."""
        if self._config.tracking.rollouts:
            self._add(ROLLOUTS, {"phase": phase, "step": step}, _SPARED)

    def log_policy(self, stage: str, version: int, checkpoint: str) -> None:
        """Registers the policy of a phase as a model, without its weights, which are in the run's `checkpoint`."""
        self._add(POLICY, {"stage": stage, "about": self._about(version, checkpoint)})

    def log_assessment(self, stage: str, metrics: Mapping[str, float], version: int) -> None:
        """Logs the figures of an assessment on the parent run as `assess/...`, at the step of its policy's version, as
        a curve; on a nested run, of the phase that it follows; and on the policy. Its samples, which are
        stored in the run's directory, are logged as a table."""
        named = {f"{ASSESSMENT}{name}": value for name, value in _finite(metrics).items()}
        self.log_metrics(None, named, version)
        if named:
            self._add(SCORES, {"stage": stage, "about": self._about(version, ""), "values": named, "step": version})
        self._add(SAMPLES, {"phase": f"{ASSESSMENT}{stage}", "step": 0})

    def end_phase(self, phase: str) -> None:
        """Ends the nested run of a phase. Logging to it later opens it again."""
        self._add(PHASE_END, {"phase": phase}, _ALWAYS, ends_the_run=True)

    def log_run_directory(self) -> None:
        """Logs the resolved config, the report and the best programs as artifacts of the parent run."""
        self._add(ARTIFACTS, {}, _ALWAYS)

    def close(self, status: str = "FINISHED", timeout: float = FLUSH_SECONDS) -> None:
        """Ends all runs with a status (FINISHED, KILLED, FAILED) and waits up to `timeout` seconds for that.

        What could not be sent stays in the run's directory.
        """
        if self._sender is None:
            return
        self._monitor.close()
        self._add(END, {"status": status}, _ALWAYS)
        sender, self._sender = self._sender, None
        sender.close(timeout)

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, LeaseLost):
            self._leave_to_another()
        elif self.was_stopped or (kind is not None and issubclass(kind, KeyboardInterrupt | SystemExit)):
            self.close("KILLED", FLUSH_SECONDS_KILLED)
        else:
            self.close("FINISHED" if kind is None else "FAILED")

    def _about(self, version: int, checkpoint: str) -> dict[str, str]:
        about = {"base": self._config.policy.model, "policy_version": str(version), "checkpoint": checkpoint}
        return {name: value for name, value in about.items() if value}

    def _leave_to_another(self) -> None:
        """Says nothing more: another process tells MLflow of this run now."""
        if (sender := self._sender) is not None:
            self._sender = None
            self._monitor.close()
            sender.abandon()

    def _log_system_metrics(self, metrics: Mapping[str, float]) -> None:
        """Their step is the number of seconds since the run began, which goes on after a restart."""
        seconds = (time.time_ns() // 1_000_000 - self._began) // 1000
        self._add_metrics(None, metrics, seconds, _SPARED)

    def _add_metrics(
        self,
        phase: str | None,
        metrics: Mapping[str, float],
        step: int,
        share: float = 1.0,
        *,
        ends_the_run: bool = False,
    ) -> None:
        if values := _finite(metrics):
            self._add(METRICS, {"phase": phase, "step": step, "values": values}, share, ends_the_run=ends_the_run)

    def _add(self, kind: str, body: Mapping[str, Any], share: float = 1.0, *, ends_the_run: bool = False) -> None:
        if (sender := self._sender) is None:
            return
        try:
            if self._spool.add(kind, body, share):
                sender.wake()
                return
            reason = "too much waits for MLflow already"
        except DiskFull as error:
            if ends_the_run:
                raise
            reason = str(error)
        except OSError as error:
            reason = str(error)
        if not self._is_full:
            self._is_full = True
            _log.warning("some metrics will be missing in MLflow (the run's directory has them): %s", reason)


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    numbers = {name: float(value) for name, value in metrics.items()}
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def has_rest(run: RunDirectory) -> bool:
    """Whether earlier processes left something to send, or left the MLflow runs RUNNING."""
    return known_runs(run).get("status") == "RUNNING" or len(Spool(run.storage)) > 0


def send_rest(config: RunConfig, run: RunDirectory, timeout: float = FLUSH_SECONDS) -> tuple[int, int]:
    """Sends what earlier processes could not, and ends MLflow runs that are RUNNING though no process is at work.

    They become FINISHED if the run is finished, else KILLED at the time of the last commit. Returns the numbers of
    records that waited and that are left after at most `timeout` seconds. The caller holds the run's lock.
    """
    _set_defaults()
    state = run.read_state()
    ids = _newest_ids(run, state.tracking if state else None)
    spool = Spool(run.storage)
    if not ids and not len(spool):
        return 0, 0  # MLflow has never been told of it
    waited = len(spool)
    if next((kind for kind in reversed(spool.kinds()) if kind in (BEGIN, END)), None) != END:
        spool.add(END, _end_of_killed(run, state), _ALWAYS)
    sender = Sender(run, spool, MlflowRuns(config, ids))
    sender.start()
    return waited, sender.close(timeout)


def _end_of_killed(run: RunDirectory, state: RunState | None) -> dict[str, Any]:
    """The record of the end that a killed process did not make: at its last commit, if there is one."""
    ended = {"time": run.storage.modified("state.json")[0] // 1_000_000} if state else {}
    return {"status": "FINISHED" if state and state.finished else "KILLED", "only_running": True, **ended}


def _newest_ids(run: RunDirectory, committed: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """MLflow's ids as the last commit has them, or newer ones of the same run that came after it."""
    known: Mapping[str, Any] = known_runs(run).get("ids", {})
    if not committed or committed.get("key") == known.get("key"):
        return known
    return committed


def _set_defaults() -> None:
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
