"""Sends MLflow what a run's spool holds: in order, each record once, in the background, for as long as it takes.

A failure delays and loses nothing. After a kill, the next process goes on with the oldest record.
"""

# Not MLflow's asynchronous logging (3.17): it covers neither making and ending runs nor artifacts, its queue has no
# bound and lies in memory, and flushing it has no time-out, so an absent server would stop the run.

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from configs.addresses import without_login
from orchestration.run.directory import RunDirectory
from orchestration.run.mlflow_runs import METRICS_PER_CALL, MlflowRuns, Point
from orchestration.run.spool import Record, Spool

_log = logging.getLogger(__name__)

BEGIN, METRICS, PHASE_END, ARTIFACTS, END = "begin", "metrics", "phase_end", "artifacts", "end"
TASKS, POLICY, SCORES, SAMPLES, ROLLOUTS = "tasks", "policy", "scores", "samples", "rollouts"
"""Kinds of records."""

KNOWN = "tracking/runs.json"
"""MLflow's ids of the run, and the status that MLflow has been told, in the run's directory."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before the next attempt: after a first failure, and at most. Each failure doubles them."""

LAST_ATTEMPTS = 3
"""Failures after which a sender that is being closed leaves the rest to the next process."""

_WARN_AGAIN_SECONDS = 600.0
_REFUSALS = (
    "INVALID_PARAMETER_VALUE", "BAD_REQUEST", "MALFORMED_REQUEST",
    "ENDPOINT_NOT_FOUND", "NOT_IMPLEMENTED", "FEATURE_DISABLED",  # by an older server, or a store of files
)  # fmt: skip
_DETAILS = (ARTIFACTS, SAMPLES, ROLLOUTS)  # which may go to other servers or routes, and keep nothing else waiting


class Sender:
    """The background thread that empties a spool. It alone speaks to MLflow."""

    def __init__(
        self, run: RunDirectory, spool: Spool, runs: MlflowRuns, when_ready: Callable[[], None] = lambda: None
    ) -> None:
        """`when_ready` is called once, in the thread, when MLflow is imported, which takes seconds."""
        self._run, self._spool, self._runs, self._when_ready = run, spool, runs, when_ready
        self._in_doubt = len(spool) > 0  # a kill may have come after a record was sent and before it was removed
        self._alone = 0  # records that go one by one, because MLflow refused them together
        self._news, self._closing, self._abandoned = threading.Event(), threading.Event(), threading.Event()
        self._known = known_runs(run)
        self._warned: dict[str, float] = {}  # when, by the kind of failure
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)

    def start(self) -> None:
        """Begins to send. Before, the ids are put down, so that a kill leaves no run that nobody finds again."""
        known = {"ids": self._runs.ids, "status": self._known.get("status")}
        if known != self._known:
            self._run.storage.write(KNOWN, json.dumps(known).encode())
            self._known = json.loads(json.dumps(known))
        self._thread.start()

    def wake(self) -> None:
        """Tells the thread that there are new records. Returns at once."""
        self._news.set()

    def close(self, timeout: float) -> int:
        """Sends what waits, for at most so many seconds, and ends the thread. Returns the number of records left.

        Gives up earlier if MLflow fails again and again. A call that hangs is left behind; nothing follows it.
        """
        self._closing.set()
        self._news.set()
        self._thread.join(timeout)
        self._abandoned.set()
        if left := len(self._spool):
            _log.warning(
                "MLflow at %s does not have everything yet: %d records wait in %s/tracking; `warpsmith track %s` sends "
                "them, and so does the next `warpsmith run`",
                without_login(self._runs.uri), left, self._run, self._run,
            )  # fmt: skip
        return left

    def abandon(self) -> None:
        """Sends nothing more, but for a call that is under way. Returns at once; what waits stays."""
        self._abandoned.set()
        self._closing.set()
        self._news.set()

    def _work(self) -> None:
        is_ready, failures, last_failures = False, 0, 0
        while not self._abandoned.is_set():
            self._news.clear()
            try:
                if not is_ready:
                    import mlflow  # noqa: F401

                    self._when_ready()
                    is_ready = True
                if self._send_oldest():
                    failures = 0
                elif self._closing.is_set():
                    return
                else:
                    self._news.wait()
            except Exception as error:  # noqa: BLE001 - whatever a tracking store raises, training goes on
                failures += 1
                self._in_doubt = True
                self._runs.disconnect()
                self._warn(error)
                if self._closing.is_set():
                    last_failures += 1
                    if last_failures == LAST_ATTEMPTS:
                        return
                    self._abandoned.wait(FIRST_PAUSE)
                else:
                    self._closing.wait(min(FIRST_PAUSE * 2.0 ** min(failures - 1, 16), LONGEST_PAUSE))

    def _send_oldest(self) -> bool:
        """Sends the oldest records that go together. False if none waits. Raises what MLflow raises."""
        batch = self._oldest_batch()
        if not batch:
            return False
        try:
            self._send(batch)
        except Exception as error:
            if not self._goes_on_after(batch, error):
                raise
            return True
        if self._known != (known := self._to_know(batch[-1])):
            self._run.storage.write(KNOWN, json.dumps(known).encode())
            self._known = known
        self._alone = max(self._alone - len(batch), 0)
        for record in batch:
            self._spool.remove(record)
        return True

    def _oldest_batch(self) -> list[Record]:
        """The oldest record; if it holds metrics, with those after it that fit into the same call."""
        batch: list[Record] = []
        points = 0
        for record in self._spool.oldest():
            points += len(record.body.get("values", ()))
            first = batch[0] if batch else record
            is_like = first.kind == record.kind == METRICS and first.body["phase"] == record.body["phase"]
            if batch and not (is_like and points <= METRICS_PER_CALL and not self._alone):
                break
            batch.append(record)
            if record.kind != METRICS:
                break
        return batch

    def _send(self, batch: list[Record]) -> None:
        first = batch[0]
        body = first.body
        if first.kind == METRICS:
            points = [
                Point(name, value, record.body["step"], record.time)
                for record in batch
                for name, value in record.body["values"].items()
            ]
            self._runs.log_metrics(body["phase"], points, in_doubt=self._in_doubt)
            self._in_doubt = self._alone > 1
        else:
            self._send_other(first.kind, body, body.get("time", first.time))

    def _send_other(self, kind: str, body: Mapping[str, Any], time: int) -> None:
        if kind == BEGIN:
            self._runs.begin(body["parameters"], body["completed"], time)
        elif kind == END:
            self._runs.finish(body["status"], time, only_running=body.get("only_running", False))
        elif kind == PHASE_END:
            self._runs.end_phase(body["phase"], time)
        elif kind == ARTIFACTS:
            self._runs.log_run_directory(self._run, time)
        elif kind == TASKS:
            self._runs.log_tasks(body["sets"], time)
        elif kind == POLICY:
            self._runs.log_policy(body["stage"], body["about"], time)
        elif kind == SCORES:
            self._runs.log_scores(body["stage"], body["about"], body["values"], body["step"], time)
        elif kind == SAMPLES:
            self._runs.log_samples(self._run, body["phase"], body["step"], time)
        elif kind == ROLLOUTS:
            self._runs.log_rollouts(self._run, body["phase"], body["step"], time)

    def _goes_on_after(self, batch: list[Record], error: Exception) -> bool:
        """Whether the failure is of these records alone, which are now out of the way of the others.

        Details may go elsewhere, whose absence must not keep a run from its metrics and its status. What MLflow refuses
        for its content would be refused for ever, like what it is too old for.
        """
        record, code = batch[0], getattr(error, "error_code", "")
        if not (isinstance(error, NotImplementedError) or code in _REFUSALS):
            if record.kind in _DETAILS and any(kind not in _DETAILS for kind in self._spool.kinds()):
                self._spool.postpone(record)
                return True
            return False
        if deleted := self._runs.deleted(record.body.get("phase")):
            raise RuntimeError(
                f"run {deleted} is deleted; `mlflow runs restore --run-id {deleted}` makes it accept more"
            )
        if len(batch) > 1:
            self._alone = len(batch)
        else:
            self._alone = max(self._alone - 1, 0)
            path = self._spool.set_aside(record)
            _log.warning("MLflow refuses a record, which stands in %s: %s", path, _line(error))
        return True

    def _to_know(self, sent: Record) -> dict[str, Any]:
        status = self._known.get("status")
        if sent.kind in (BEGIN, END):
            status = sent.body.get("status", "RUNNING")
        return {"ids": json.loads(json.dumps(self._runs.ids)), "status": status}

    def _warn(self, error: Exception) -> None:
        now, kind = time.monotonic(), type(error).__name__
        if now - self._warned.get(kind, -math.inf) > _WARN_AGAIN_SECONDS:
            self._warned[kind] = now
            _log.warning(
                "MLflow at %s: %s. The run goes on. What MLflow does not have waits in %s/tracking and is sent later; "
                "check tracking.uri",
                without_login(self._runs.uri), _line(error), self._run,
            )  # fmt: skip


def known_runs(run: RunDirectory) -> Mapping[str, Any]:
    """What `KNOWN` holds: `ids` and `status`; empty if there is none that can be read."""
    try:
        known = json.loads(run.storage.read(KNOWN))
        return known if isinstance(known.get("ids"), dict) else {}
    except (FileNotFoundError, ValueError, AttributeError):
        return {}


def _line(error: Exception) -> str:
    return without_login(" ".join(str(error).split())[:300])  # errors of HTTP requests quote the URI
