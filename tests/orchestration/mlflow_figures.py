"""What MLflow shows of the assessments of a run, beside what a report says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlflow import MlflowClient

SHARES = ("success_rate", "faster_rate", "improved_rate")
SPEEDS = ("mean", "max", "p75", "p50", "p25")


def assessments_in_mlflow(client: MlflowClient, run_id: str) -> list[dict[str, float]]:
    """The figures of each assessment on a parent run, in order, without their prefix."""
    names = [name for name in client.get_run(run_id).data.metrics if name.startswith("assess/")]
    by_time: dict[int, dict[str, float]] = {}
    for name in names:
        for point in client.get_metric_history(run_id, name):
            by_time.setdefault(point.timestamp, {})[name.removeprefix("assess/")] = point.value
    return [by_time[time] for time in sorted(by_time)]


def figures_in_report(stage: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """The same figures, of a stage as `warpsmith compare --json` prints it. `prefix`: of its group of tasks."""
    figures = {name: stage[name]["value"] for name in SHARES}
    figures["rollouts"] = stage["rollouts"]
    for over in ("speedup_eager", "speedup_best"):
        for name in SPEEDS:
            each = stage[over][name]
            if each is not None:
                figures[f"{over}/{name}"] = each if name == "max" else each["value"]
    if stage["speedup_eager"]["mean"]:
        figures["mean_speedup"] = stage["speedup_eager"]["mean"]["value"]
    return {f"{prefix}{name}": value for name, value in figures.items()}
