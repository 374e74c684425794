"""The table of CUDA-L1 (section 4): how fast the best program of each task is, by arm of a sweep.

A task's speed-up is that of the fastest right program among the samples of its last stage, and 0 without one. All
figures are of tasks; their intervals are over tasks and seeds. Pure functions, but for `read_arms`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from evaluators.records import Estimate
from evaluators.reward import FASTER
from orchestration.experiments.sweep import Sweep
from orchestration.report import build_report
from orchestration.report import format as fmt
from orchestration.report.assemble import Report
from orchestration.report.bootstrap import RESAMPLES, Floats, draws_of_tasks, estimate_from
from orchestration.report.shares import share_of
from orchestration.report.statistics import AssessmentRow
from orchestration.report.tables import Cell, Table

NOTE = (
    "Speed-ups over eager of a task's fastest right program, 0x for a task without one. Samples: of a "
    "task, from which it is taken. Success: the share of tasks with a right program; > 1.01x: with one that is faster. "
    "Times {first}: the geometric mean over tasks, where the reference is kept if nothing is faster. Ranges are 95 % "
    "confidence intervals over tasks and {seeds} seed(s); a maximum has none. Below the arms stand constant policies."
)
COLUMNS = ("samples", "mean", "max", "75 %", "50 %", "25 %", "success", "> 1.01x")


@dataclass(frozen=True)
class Arm:
    """One arm on one group of tasks: `samples` of a task, and `best`, [seeds, tasks]: the speed-up of each task's best
    program, 0 without a right one, NaN if a seed did not measure the task."""

    name: str
    samples: float
    best: Floats


@dataclass(frozen=True)
class Compared:
    """The arms on one group of tasks, and the constant policies beside them. `title`: of the group."""

    title: str
    arms: tuple[Arm, ...]
    constants: tuple[Arm, ...]


def read_reports(sweep: Sweep) -> dict[str, list[Report]]:
    """The reports of the runs that have begun, by arm, in the order of the seeds."""
    found: dict[str, list[Report]] = {arm: [] for arm in sweep.arms}
    for trial in sweep.trials:
        if trial.run.exists():
            found[trial.arm].append(build_report(trial.run))
    return found


def compare_arms(reports: Mapping[str, Sequence[Report]]) -> list[Compared]:
    """The arms by group of tasks: those trained on, and those held out. An arm without samples is left out."""
    count = max((len(report.groups) for of_arm in reports.values() for report in of_arm), default=0)
    compared = []
    for index in range(count):
        groups = {
            arm: [report.groups[index] for report in of_arm if len(report.groups) > index]
            for arm, of_arm in reports.items()
        }
        known = [group for of_arm in groups.values() for group in of_arm]
        tasks = sorted({row.task_id for group in known for stage in group.stages for row in stage.rows})
        arms = [
            _arm(arm, [group.stages[-1].rows for group in of_arm if group.stages], tasks)
            for arm, of_arm in groups.items()
        ]
        names = list(dict.fromkeys(stage.label for group in known for stage in group.constants))
        constants = [
            _arm(
                name,
                [stage.rows for group in known for stage in group.constants if stage.label == name and stage.rows],
                tasks,
            )
            for name in names
        ]
        title = next((group.title for group in known if group.title), "Tasks")
        compared.append(Compared(title, tuple(filter(_has_values, arms)), tuple(filter(_has_values, constants))))
    return [each for each in compared if each.arms]


def table_of(compared: Compared, seeds: int) -> Table:
    """The table of a group of tasks."""
    first = compared.arms[0]
    rows = tuple((arm.name, (*_cells(arm), _gain(first, arm))) for arm in compared.arms)
    others = tuple((arm.name, (*_cells(arm), Cell(fmt.NOTHING))) for arm in compared.constants)
    note = NOTE.format(first=first.name, seeds=seeds)
    return Table(compared.title, note, "arm", (*COLUMNS, f"times\n{first.name}"), rows, others)


def best_of_tasks(rows: Iterable[AssessmentRow], tasks: Sequence[str]) -> Floats:
    """[tasks]: the speed-up over eager of the fastest right sample of each task; 0 if none is right, NaN without any
    sample."""
    best = dict.fromkeys(tasks, np.nan)
    for row in rows:
        if row.task_id in best:
            best[row.task_id] = float(np.fmax(best[row.task_id], row.over_eager or 0.0))
    return np.array([best[task] for task in tasks])


def estimate_over_tasks_and_seeds(values: Floats, figure: Callable[[Floats], NDArray[np.float64]]) -> Estimate:
    """A figure of [seeds, tasks] with its interval over both. `figure` maps [..., values] to [...]; NaN is no value.

    Each resample draws seeds, and tasks, which keep all their seeds, as tasks are what arms share. As for stages, fewer
    are drawn than there are, which makes the variance right (`orchestration.report.bootstrap`).
    """
    seeds, tasks = values.shape
    generator = np.random.default_rng(0)
    drawn_seeds = generator.integers(seeds, size=(RESAMPLES, max(seeds - 1, 1)))
    drawn_tasks = generator.integers(tasks, size=(RESAMPLES, draws_of_tasks(tasks)))
    resamples = values[drawn_seeds[:, :, None], drawn_tasks[:, None, :]].reshape(RESAMPLES, -1)
    has_any = ~np.isnan(resamples).all(axis=1)
    return estimate_from(float(figure(values.reshape(1, -1))[0]), figure(resamples[has_any]), tasks)


def _arm(name: str, seeds: Sequence[Sequence[AssessmentRow]], tasks: Sequence[str]) -> Arm:
    rows = sum(map(len, seeds))
    measured = sum(len({row.task_id for row in of_seed}) for of_seed in seeds)
    best = np.array([best_of_tasks(of_seed, tasks) for of_seed in seeds]).reshape(len(seeds), len(tasks))
    return Arm(name, rows / max(measured, 1), best)


def _has_values(arm: Arm) -> bool:
    return bool(arm.best.size) and not np.isnan(arm.best).all()


def _cells(arm: Arm) -> tuple[Cell, ...]:
    best = arm.best

    def speed(figure: Callable[[Floats], Floats]) -> Cell:
        return _speed(estimate_over_tasks_and_seeds(best, figure))

    def share(least: float) -> Cell:
        flags = np.where(np.isnan(best), np.nan, (best > least).astype(float))
        return _share(flags)

    quarters = (speed(partial(_percentile, at)) for at in (75, 50, 25))
    most = Cell(fmt.speed(float(np.nanmax(best))))
    return Cell(f"{arm.samples:g}"), speed(_mean), most, *quarters, share(0.0), share(FASTER)


def _gain(first: Arm, arm: Arm) -> Cell:
    """The geometric mean of the speed-ups as multiples of the first arm's, task by task and seed by seed."""
    if arm is first or arm.best.shape != first.best.shape:
        return Cell(fmt.NOTHING)
    logs = np.log(np.maximum(arm.best, 1.0)) - np.log(np.maximum(first.best, 1.0))
    estimate = estimate_over_tasks_and_seeds(logs, lambda values: np.exp(_mean(values)))
    return _speed(estimate)


def _speed(estimate: Estimate) -> Cell:
    """Without an interval if it has no width."""
    if math.isclose(estimate.low, estimate.high):
        return Cell(fmt.speed(estimate.value))
    return Cell(fmt.speed(estimate.value), fmt.speed_interval(estimate))


def _share(flags: Floats) -> Cell:
    """The mean of flags [seeds, tasks]. Its interval holds Wilson's over tasks, which has a width also if all are
    alike."""
    estimate, known = estimate_over_tasks_and_seeds(flags, _mean), ~np.isnan(flags)
    tasks = [str(task) for task in np.nonzero(known)[1]]
    wilson = share_of([bool(flag) for flag in flags[known]], tasks) or estimate
    low, high = min(estimate.low, wilson.low), max(estimate.high, wilson.high)
    return Cell(fmt.share(estimate.value), fmt.share_interval(replace(estimate, low=low, high=high)))


def _percentile(at: int, values: Floats) -> Floats:
    return cast(Floats, np.nanpercentile(values, at, axis=1))


def _mean(values: Floats) -> Floats:
    return cast(Floats, np.nanmean(values, axis=1))
