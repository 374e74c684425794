"""Figures of a stage's samples, with 95 % confidence intervals over tasks. Pure functions over rows.

Shares have Wilson intervals, speed-ups bootstrap intervals. No figure here is ever NaN: a figure that does not exist is
None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from evaluators.records import Estimate, Outcome, Verdict
from evaluators.reward import FASTER
from learners.records import REFERENCE
from orchestration.report.bootstrap import (
    Floats,
    as_array,
    estimate_from,
    resample,
    weighted_mean,
    weighted_median,
    weighted_quantile,
)
from orchestration.report.shares import share_of


@dataclass(frozen=True)
class AssessmentRow:
    """One sample of an assessment.

    `speedups`: over each of the run's baselines, if the outcome is `ok`. `findings`: the kinds of the guard's findings
    that decided. `copy_of`: the program of its prompt that it copies (`Rollout.copy_of`); None if that is unknown.
    `is_lesson`: whether the program was taught before. `has_own_kernel`: whether it launched a kernel of its own; None
    if no GPU was watched. `program`: its digest. `has_best`: whether the baselines of its task are known.

    Every other outcome counts as a failure, also `infra`: a sample that could not be measured never flatters.
    """

    task_id: str
    outcome: str
    speedups: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    copy_of: str | None = None
    is_lesson: bool = False
    has_own_kernel: bool | None = None
    program: str | None = None
    has_best: bool = True

    @classmethod
    def of(cls, verdict: Verdict) -> AssessmentRow:
        """A program of which nothing is known but its verdict."""
        speedups = {name: estimate.value for name, estimate in verdict.speedups.items()}
        findings = tuple(dict.fromkeys(finding.kind for finding in verdict.deciding))
        own = verdict.trace.own_kernel_share > 0.0 if verdict.trace else None
        return cls(
            verdict.task, str(verdict.outcome), speedups, findings, has_own_kernel=own, program=verdict.candidate
        )

    @property
    def is_correct(self) -> bool:
        return self.outcome == Outcome.OK

    @property
    def over_eager(self) -> float | None:
        """Speed-up over eager; None if the sample is not correct."""
        return self.speedups.get("eager") if self.is_correct else None

    @property
    def over_best(self) -> float | None:
        """Speed-up over the fastest baseline; None if the sample is not correct, or if that is unknown."""
        return min(self.speedups.values()) if self.is_correct and self.speedups and self.has_best else None

    @property
    def is_faster(self) -> bool:
        """Whether it is correct and more than 1.01x as fast as eager."""
        return (self.over_eager or 0.0) > FASTER

    @property
    def is_new(self) -> bool | None:
        """Whether it is correct, and neither a copy nor a program that was taught; None if that is unknown."""
        if not self.is_correct or self.is_lesson:
            return False
        return None if self.copy_of is None else not self.copy_of


@dataclass(frozen=True)
class SpeedSummary:
    """The speed-ups of the correct samples; all None without a correct sample.

    `upper`, `median`, `lower`: the 75, 50 and 25 % percentiles. `most`: the largest. It has no interval, since no
    resample of the tasks can have a larger one.
    """

    mean: Estimate | None = None
    median: Estimate | None = None
    geometric_mean: Estimate | None = None
    upper: Estimate | None = None
    lower: Estimate | None = None
    most: float | None = None


@dataclass(frozen=True)
class StageSummary:
    """One stage of a run. `correct` counts the tasks with at least one correct sample.

    Shares of all samples: `copies` are correct and copy the reference, `lessons` are correct and programs that were
    taught, `new` are correct and neither of these; `faster` and `improved` are correct and more than 1.01x as fast as
    eager and as the best baseline, `new_faster` are new and faster. `own_kernel` is a share of the correct samples.
    Those that need to know of copies are None if a correct sample was not checked for that, and so is `own_kernel` if
    no GPU was watched.
    """

    stage: str
    tasks: int
    samples: int
    success: Estimate | None
    correct: int
    over_eager: SpeedSummary
    over_best: SpeedSummary
    improved: Estimate | None
    faster: Estimate | None
    copies: Estimate | None
    lessons: Estimate | None
    new: Estimate | None
    new_faster: Estimate | None
    own_kernel: Estimate | None

    @property
    def correct_share(self) -> float | None:
        """The share of tasks with at least one correct sample; None without tasks."""
        return self.correct / self.tasks if self.tasks else None

    @property
    def lessons_of_correct(self) -> float | None:
        """The share of programs that were taught among the correct samples; None without any."""
        if not self.lessons or not self.success or not self.success.value:
            return None
        return self.lessons.value / self.success.value


@dataclass(frozen=True)
class TaskSummary:
    """One task in one stage. Mean and best speed-up are over eager, None without a correct sample.

    `overall`: the geometric mean speed-up over eager of all samples, where one that is not correct counts as 1.
    `means`, `bests`: mean and best speed-up of the correct samples, by baseline.
    """

    task_id: str
    samples: int
    correct: int
    mean: float | None
    best: float | None
    overall: float = 1.0
    means: Mapping[str, float] = field(default_factory=dict)
    bests: Mapping[str, float] = field(default_factory=dict)


def summarise(rows: Iterable[AssessmentRow], stage: str) -> StageSummary:
    """The summary of a stage's samples. The same rows always give the same intervals."""
    rows = list(rows)
    correct = [row for row in rows if row.is_correct]
    (weights,) = resample([[row.task_id for row in rows]], seed=0)
    return StageSummary(
        stage=stage,
        tasks=len({row.task_id for row in rows}),
        samples=len(rows),
        success=share(rows, lambda row: row.is_correct),
        correct=len({row.task_id for row in correct}),
        over_eager=_summarise_speeds(as_array(row.over_eager for row in rows), weights),
        over_best=_summarise_speeds(as_array(row.over_best for row in rows), weights),
        improved=share(rows, lambda row: (row.over_best or 0.0) > FASTER),
        faster=share(rows, lambda row: row.is_faster),
        copies=share(rows, _is_copy),
        lessons=share(rows, lambda row: row.is_correct and row.is_lesson),
        new=share(rows, lambda row: row.is_new),
        new_faster=share(rows, lambda row: row.is_new and row.is_faster),
        own_kernel=share(correct, lambda row: row.has_own_kernel),
    )


def share(rows: Sequence[AssessmentRow], flag: Callable[[AssessmentRow], bool | None]) -> Estimate | None:
    """The share of the rows that are flagged, with its interval over tasks; None without rows, or if the flag of one is
    unknown."""
    flags = [flag(row) for row in rows]
    known = [value for value in flags if value is not None]
    return share_of(known, [row.task_id for row in rows]) if len(known) == len(flags) else None


def mean_of(values: Sequence[float | None], task_ids: Sequence[str]) -> Estimate | None:
    """The mean of the values that are not None, with its bootstrap interval over tasks; None without any."""
    pairs = [(value, task_id) for value, task_id in zip(values, task_ids, strict=True) if value is not None]
    if not pairs:
        return None
    numbers = np.array([value for value, _ in pairs])
    (weights,) = resample([[task_id for _, task_id in pairs]], seed=0)
    return estimate_from(float(numbers.mean()), weighted_mean(numbers, weights), len(pairs))


def _is_copy(row: AssessmentRow) -> bool | None:
    """Whether a sample is correct and copies the reference; None if a correct one was not checked for that."""
    if not row.is_correct:
        return False
    return None if row.copy_of is None else row.copy_of == REFERENCE


def summarise_tasks(rows: Iterable[AssessmentRow]) -> list[TaskSummary]:
    """One summary per task, ordered by the task's id."""
    grouped: dict[str, list[AssessmentRow]] = defaultdict(list)
    for row in rows:
        grouped[row.task_id].append(row)
    return [_summarise_task(task_id, samples) for task_id, samples in sorted(grouped.items())]


def _summarise_task(task_id: str, samples: Sequence[AssessmentRow]) -> TaskSummary:
    speeds: dict[str, list[float]] = defaultdict(list)
    for row in samples:
        for baseline, speed in row.speedups.items() if row.is_correct else ():
            speeds[baseline].append(speed)
    means = {baseline: sum(values) / len(values) for baseline, values in speeds.items()}
    bests = {baseline: max(values) for baseline, values in speeds.items()}
    return TaskSummary(
        task_id,
        len(samples),
        sum(row.is_correct for row in samples),
        means.get("eager"),
        bests.get("eager"),
        float(np.exp(np.mean([np.log(row.over_eager or 1.0) for row in samples]))),
        means,
        bests,
    )


def _summarise_speeds(values: Floats, weights: Floats) -> SpeedSummary:
    """`values`: [samples], NaN for a sample without a speed-up. `weights`: [RESAMPLES, samples]."""
    is_number = ~np.isnan(values)
    values, weights = values[is_number], weights[:, is_number]
    if not len(values):
        return SpeedSummary()
    logs = np.log(values)
    n = len(values)
    lower, upper = (
        estimate_from(float(np.quantile(values, share)), weighted_quantile(values, weights, share), n)
        for share in (0.25, 0.75)
    )
    return SpeedSummary(
        mean=estimate_from(float(values.mean()), weighted_mean(values, weights), n),
        median=estimate_from(float(np.median(values)), weighted_median(values, weights), n),
        geometric_mean=estimate_from(float(np.exp(logs.mean())), np.exp(weighted_mean(logs, weights)), n),
        upper=upper,
        lower=lower,
        most=float(values.max()),
    )


def estimate_as_json(estimate: Estimate | None) -> dict[str, float] | None:
    """`{"value", "low", "high", "n"}`."""
    return asdict(estimate) if estimate is not None else None
