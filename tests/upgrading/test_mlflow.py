"""What MLflow forces us to do, and what we rely on in it (docs/upgrading.md)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from mlflow.entities import Metric, RunData
from mlflow.exceptions import MlflowException
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
from mlflow.utils import validation
from mlflow.utils.async_logging.async_logging_queue import AsyncLoggingQueue

Still = Callable[[object], None]


def test_asynchronous_logging(still: Still) -> None:
    queue = AsyncLoggingQueue(lambda *_: None)
    still(queue._queue.maxsize == 0)
    still(not any("timeout" in name for name in inspect.signature(AsyncLoggingQueue.flush).parameters))


def test_system_metrics(monkeypatch: pytest.MonkeyPatch, still: Still) -> None:
    asked = list[str]()

    class Absent:
        def __init__(self, *_: Any) -> None:
            pass

        def get_run(self, run: str) -> Any:
            asked.append(run)
            raise MlflowException("no server")

    monkeypatch.setattr("mlflow.tracking.client.MlflowClient", Absent)
    monitor = SystemMetricsMonitor("a run", sampling_interval=0.01, tracking_uri="http://127.0.0.1:9")
    monitor.monitors = []
    monitor.start()
    assert monitor._process is not None
    monitor._process.join(20)
    still(asked == ["a run"] and not monitor._process.is_alive())
    monitor._shutdown_event.set()


def test_steps_of_metrics(still: Still) -> None:
    data = RunData([Metric("loss", 0.5, 1000, 7)], [], [])
    still(data.metrics == {"loss": 0.5})
    still([(one.key, one.step, one.timestamp) for one in data.to_proto().metrics] == [("loss", 7, 1000)])


def test_limits_of_calls(still: Still) -> None:
    limits = (validation.MAX_METRICS_PER_BATCH, validation.MAX_PARAMS_TAGS_PER_BATCH, validation.MAX_PARAM_VAL_LENGTH)
    still(limits == (1000, 100, 6000) and validation.MAX_ENTITY_KEY_LENGTH == 250)
