"""Samples the use of CPU, memory, disk, network and GPU of the driver's machine, with MLflow's monitors.

Not by MLflow's `SystemMetricsMonitor` (3.17), which asks the server at each sample, and ends for good at the first
failure.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

_log = logging.getLogger(__name__)

_SECONDS = 10.0  # between two samples, as in MLflow


class SystemMetrics:
    """A background thread that records system metrics until it is closed."""

    def __init__(self, record: Callable[[Mapping[str, float]], None]) -> None:
        """`record` gets the metrics of each sample, named as MLflow's UI expects them."""
        self._record = record
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="system metrics", daemon=True)

    def start(self) -> None:
        """Begins to sample, unless it is closed already."""
        if not self._closing.is_set():
            self._thread.start()

    def close(self) -> None:
        """Ends the thread. Waits at most a second for a sample under way."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _work(self) -> None:
        from mlflow.environment_variables import (
            MLFLOW_SYSTEM_METRICS_NODE_ID,
            MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING,
            MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL,
        )

        node = MLFLOW_SYSTEM_METRICS_NODE_ID.get()
        prefix = f"system/{node}/" if node else "system/"
        samples = MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING.get() or 1
        seconds = MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL.get() or _SECONDS
        monitors = _monitors()
        while not self._closing.is_set():
            try:
                for _ in range(samples):
                    for monitor in monitors:
                        monitor.collect_metrics()
                    if self._closing.wait(seconds):
                        return
                values: dict[str, float] = {}
                for monitor in monitors:
                    values |= monitor.aggregate_metrics()
                    monitor.clear_metrics()
                self._record({prefix + name: value for name, value in values.items()})
            except Exception as error:  # noqa: BLE001 - a driver's library may raise anything
                _log.debug("no system metrics this time: %s", error)
                self._closing.wait(seconds)


def _monitors() -> list[Any]:
    """MLflow's monitors of what this machine has."""
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
    from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor
    from mlflow.system_metrics.metrics.rocm_monitor import ROCMMonitor

    monitors: list[Any] = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
    for kind in (GPUMonitor, ROCMMonitor):
        try:
            monitors.append(kind())
            break
        except Exception as error:  # noqa: BLE001 - MLflow raises whatever the driver's library does
            _log.debug("no metrics of %s: %s", kind.__name__, error)
    return monitors
