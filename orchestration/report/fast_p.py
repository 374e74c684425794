"""KernelBench's `fast_p` (Ouyang et al. 2025, arXiv 2502.10517): the share of all tasks that are right and more than p
times as fast as a baseline. By level, as KernelBench reports it, beside all levels. Pure functions over rows.

KernelBench takes one sample a task. With several, a task counts with the share of its samples, which is what one sample
gives on average. A right sample whose speed-up over the baseline is unknown is right (p = 0) and never faster.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from evaluators.records import Estimate
from orchestration.report.shares import mean_share
from orchestration.report.statistics import AssessmentRow

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""Those of KernelBench's own analysis."""
FURTHER = (3.0, 5.0)
ALL = "all levels"
FastP = Mapping[str, Mapping[float, Estimate]]
"""By level (`level 1`, ...; `all levels` first), `fast_p` by p, with its interval over tasks."""


def fast_p(rows: Iterable[AssessmentRow], baseline: str, thresholds: Sequence[float] = THRESHOLDS) -> FastP:
    """`fast_p` of samples over a baseline. A single level has no entry beside `all levels`."""
    by_task: dict[str, list[AssessmentRow]] = defaultdict(list)
    for row in rows:
        by_task[row.task_id].append(row)
    levels: dict[str, list[str]] = defaultdict(list)
    for task_id in sorted(by_task, key=lambda name: (level_of(name), name)):
        levels[f"level {level_of(task_id)}"].append(task_id)
    groups = {ALL: list(by_task), **(levels if len(levels) > 1 else {})}
    return {
        name: {
            p: estimate
            for p in thresholds
            if (estimate := mean_share([_share(by_task[task_id], baseline, p) for task_id in tasks])) is not None
        }
        for name, tasks in groups.items()
        if tasks
    }


def level_of(task_id: str) -> int:
    """The level that a task's id begins with; 0 for another id."""
    match = re.match(r"level(\d+)/", task_id)
    return int(match[1]) if match else 0


def baselines_in(rows: Iterable[AssessmentRow]) -> list[str]:
    """The baselines over which any of these samples has a speed-up, `eager` first."""
    found = {name for row in rows for name in row.speedups}
    return sorted(found, key=lambda name: (name != "eager", name))


def fast_p_as_json(rows: Sequence[AssessmentRow]) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """By baseline, level and p (as text: `1.5`), each an estimate `{"value", "low", "high", "n"}`."""
    return {
        baseline: {
            level: {f"{p:g}": asdict(each) for p, each in by_p.items()}
            for level, by_p in fast_p(rows, baseline, (*THRESHOLDS, *FURTHER)).items()
        }
        for baseline in baselines_in(rows)
    }


def _share(rows: Sequence[AssessmentRow], baseline: str, p: float) -> float:
    """The share of a task's samples that are right and more than p times as fast."""
    if p == 0:
        return sum(row.is_correct for row in rows) / len(rows)
    return sum(row.is_correct and row.speedups.get(baseline, 0.0) > p for row in rows) / len(rows)
