"""Heat maps of tasks by stage, and of tasks by run: how fast and how right the samples of each are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from orchestration.report import format as fmt
from orchestration.report.statistics import TaskSummary

FULL = 8.0
"""The speed-up, or its inverse, at which a cell has its full colour."""


@dataclass(frozen=True)
class HeatCell:
    """A task in a stage. `tint`: from -100 (slower) over 0 (as fast as the reference) to 100 (faster), None if no
    sample was right. `words`: what the pointer shows."""

    value: str
    below: str
    tint: int | None
    words: str


@dataclass(frozen=True)
class HeatMap:
    """`columns`: a name and a name above it, which may be empty. `rows`: task and cells, None if not measured."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[HeatCell | None, ...]], ...]

    @property
    def spans(self) -> list[tuple[str, int]]:
        """The names above, each with the number of its columns; none if all are empty."""
        spans = [(above, len(list(columns))) for above, columns in groupby(self.columns, key=lambda column: column[1])]
        return spans if any(above for above, _ in spans) else []

    @property
    def begins(self) -> set[int]:
        """The columns at which another name above begins."""
        return {index for index in range(1, len(self.columns)) if self.columns[index][1] != self.columns[index - 1][1]}


def heat_map(columns: Sequence[tuple[str, str]], stages: Sequence[Sequence[TaskSummary]]) -> HeatMap:
    """`stages`: the tasks of each column."""
    by_stage: list[Mapping[str, TaskSummary]] = [{task.task_id: task for task in tasks} for tasks in stages]
    names = sorted({name for tasks in by_stage for name in tasks})
    by_column = list(zip(by_stage, columns, strict=True))
    rows = [
        (name, tuple(_cell(tasks[name], column) if name in tasks else None for tasks, column in by_column))
        for name in names
    ]
    return HeatMap(tuple(columns), tuple(rows))


def _cell(task: TaskSummary, column: tuple[str, str]) -> HeatCell:
    right = f"{task.correct}/{task.samples}"
    lines = [f"{task.task_id}, {' '.join(filter(None, reversed(column)))}", f"{task.correct} of {task.samples} right"]
    if not task.correct:
        return HeatCell(fmt.NOTHING, right, None, "\n".join(lines))
    lines.append(f"all samples, failures as 1x: {fmt.speed(task.overall)}")
    lines += [
        f"over {baseline}: mean {fmt.speed(mean)}, best {fmt.speed(task.bests[baseline])}"
        for baseline, mean in sorted(task.means.items())
    ]
    return HeatCell(fmt.speed(task.overall), right, tint_of(task.overall), "\n".join(lines))


def tint_of(speedup: float) -> int:
    """The tint of a cell."""
    return round(100 * min(max(math.log(speedup) / math.log(FULL), -1.0), 1.0))


@dataclass(frozen=True)
class TaskSpeeds:
    """Speed-ups of tasks over every baseline. `rows`: task, right samples of all, and for each of `baselines` the mean
    and the best of the right ones. `without`: the tasks without a right sample."""

    baselines: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]
    without: tuple[str, ...]


def task_speeds(tasks: Sequence[TaskSummary], baselines: Sequence[str]) -> TaskSpeeds:
    """`tasks`: of one stage."""
    rows = tuple(
        (
            task.task_id,
            f"{task.correct}/{task.samples}",
            tuple((fmt.speed(task.means.get(name)), fmt.speed(task.bests.get(name))) for name in baselines),
        )
        for task in tasks
        if task.correct
    )
    return TaskSpeeds(tuple(baselines), rows, tuple(task.task_id for task in tasks if not task.correct))
