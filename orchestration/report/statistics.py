"""Figures of a stage's samples, with 95 % confidence intervals. Pure functions over rows.

Success rates have Wilson intervals. Speed-ups are described over the correct samples and have bootstrap intervals. No
figure here is ever NaN: a figure that does not exist is None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import binomtest

from evaluators.records import Estimate, Outcome
from evaluators.reward import FASTER
from learners.records import REFERENCE
from orchestration.report.bootstrap import (
    CONFIDENCE,
    Floats,
    as_array,
    estimate_from,
    resample,
    weighted_mean,
    weighted_median,
)


@dataclass(frozen=True)
class AssessmentRow:
    """One sample of an assessment.

    `speedups`: over each of the run's baselines, if the outcome is `ok`. `findings`: the kinds of the guard's findings
    that decided. `copy_of`: the program of its prompt that it copies (`Rollout.copy_of`).

    Every other outcome counts as a failure, also `infra`: a sample that could not be measured never flatters.
    """

    task_id: str
    outcome: str
    speedups: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    copy_of: str | None = None

    @property
    def is_correct(self) -> bool:
        return self.outcome == Outcome.OK

    @property
    def over_eager(self) -> float | None:
        """Speed-up over eager; None if the sample is not correct."""
        return self.speedups.get("eager") if self.is_correct else None

    @property
    def over_best(self) -> float | None:
        """Speed-up over the fastest baseline; None if the sample is not correct."""
        return min(self.speedups.values()) if self.is_correct and self.speedups else None


@dataclass(frozen=True)
class SpeedSummary:
    """Mean, median and geometric mean of the speed-up over the correct samples; all None without a correct sample."""

    mean: Estimate | None = None
    median: Estimate | None = None
    geometric_mean: Estimate | None = None


@dataclass(frozen=True)
class StageSummary:
    """One stage of a run. `correct` counts the tasks with at least one correct sample.

    Shares of all samples: `copies` are correct and copy the reference (None if samples were not checked for that);
    `faster` and `improved` are correct and more than 1.01x as fast as eager and as the best baseline.
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

    @property
    def correct_share(self) -> float | None:
        """The share of tasks with at least one correct sample; None without tasks."""
        return self.correct / self.tasks if self.tasks else None


@dataclass(frozen=True)
class TaskSummary:
    """One task in one stage. Mean and best speed-up are over eager, None without a correct sample."""

    task_id: str
    samples: int
    correct: int
    mean: float | None
    best: float | None


def wilson(successes: int, samples: int) -> Estimate | None:
    """A share with its Wilson score interval (Wilson 1927); None without samples."""
    if samples == 0:
        return None
    interval = binomtest(successes, samples).proportion_ci(CONFIDENCE, method="wilson")
    return Estimate(successes / samples, float(interval.low), float(interval.high), samples)


def summarise(rows: Iterable[AssessmentRow], stage: str) -> StageSummary:
    """The summary of a stage's samples. The same rows always give the same intervals."""
    rows = list(rows)
    weights = resample([row.task_id for row in rows], seed=0)
    return StageSummary(
        stage=stage,
        tasks=len({row.task_id for row in rows}),
        samples=len(rows),
        success=wilson(sum(row.is_correct for row in rows), len(rows)),
        correct=len({row.task_id for row in rows if row.is_correct}),
        over_eager=_summarise_speeds(as_array(row.over_eager for row in rows), weights),
        over_best=_summarise_speeds(as_array(row.over_best for row in rows), weights),
        improved=wilson(sum((row.over_best or 0.0) > FASTER for row in rows), len(rows)),
        faster=wilson(sum((row.over_eager or 0.0) > FASTER for row in rows), len(rows)),
        copies=_share_of_copies(rows),
    )


def summarise_tasks(rows: Iterable[AssessmentRow]) -> list[TaskSummary]:
    """One summary per task, ordered by the task's id."""
    grouped: dict[str, list[AssessmentRow]] = defaultdict(list)
    for row in rows:
        grouped[row.task_id].append(row)
    summaries = []
    for task_id, samples in sorted(grouped.items()):
        speeds = [speed for row in samples if (speed := row.over_eager) is not None]
        mean = sum(speeds) / len(speeds) if speeds else None
        correct = sum(row.is_correct for row in samples)
        summaries.append(TaskSummary(task_id, len(samples), correct, mean, max(speeds, default=None)))
    return summaries


def _share_of_copies(rows: Sequence[AssessmentRow]) -> Estimate | None:
    """The share that is correct and copies the reference; None if a correct sample was not checked for that."""
    if any(row.is_correct and row.copy_of is None for row in rows):
        return None
    return wilson(sum(row.is_correct and row.copy_of == REFERENCE for row in rows), len(rows))


def _summarise_speeds(values: Floats, weights: Floats) -> SpeedSummary:
    """`values`: [samples], NaN for a sample without a speed-up. `weights`: [RESAMPLES, samples]."""
    is_number = ~np.isnan(values)
    values, weights = values[is_number], weights[:, is_number]
    if not len(values):
        return SpeedSummary()
    logs = np.log(values)
    n = len(values)
    return SpeedSummary(
        mean=estimate_from(float(values.mean()), weighted_mean(values, weights), n),
        median=estimate_from(float(np.median(values)), weighted_median(values, weights), n),
        geometric_mean=estimate_from(float(np.exp(logs.mean())), np.exp(weighted_mean(logs, weights)), n),
    )
