"""What a stage's samples say about a policy, each figure with its 95 % confidence interval. Pure functions over rows.

Success rates have Wilson intervals. Speed-ups are described over the correct samples; their intervals come from a
bootstrap that draws samples anew within each task, since the tasks are fixed and the samples are what varies. Nothing
here is ever NaN: what has no value is None.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from evaluators.records import Estimate, Outcome
from evaluators.reward import FASTER
from learners.records import REFERENCE

RESAMPLES = 2000
CONFIDENCE = 0.95

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AssessmentRow:
    """One sample of an assessment: its outcome, its speed-up over each of the run's baselines when it is `ok`, the
    kinds of findings that the guard decided by, and which program of its prompt it is (`Rollout.copy_of`).

    Any other outcome counts as a failure, `infra` too: a sample that could not be measured never flatters.
    """

    task_id: str
    outcome: str
    speedups: Mapping[str, float] = field(default_factory=dict)
    found: tuple[str, ...] = ()
    copy_of: str | None = None

    @property
    def is_correct(self) -> bool:
        return self.outcome == Outcome.OK

    @property
    def over_eager(self) -> float | None:
        return self.speedups.get("eager") if self.is_correct else None

    @property
    def over_best(self) -> float | None:
        """Speed-up over the baseline that is hardest to beat."""
        return min(self.speedups.values()) if self.is_correct and self.speedups else None


@dataclass(frozen=True)
class SpeedSummary:
    """Mean, median and geometric mean of the speed-up over the correct samples; all None without one."""

    mean: Estimate | None = None
    median: Estimate | None = None
    geometric_mean: Estimate | None = None


@dataclass(frozen=True)
class StageSummary:
    """One stage of a run. `correct` counts the tasks with at least one correct sample. Shares of all samples: `copies`
    are correct and the reference again (None where nobody looked), `faster` and `improved` are correct and more than
    1.01x as fast as eager and as the best baseline."""

    stage: str
    tasks: int
    samples: int
    success: Estimate | None
    correct: int
    over_eager: SpeedSummary
    over_best: SpeedSummary
    improved: Estimate | None
    faster: Estimate | None = None
    copies: Estimate | None = None

    @property
    def correct_share(self) -> float | None:
        return self.correct / self.tasks if self.tasks else None


@dataclass(frozen=True)
class TaskSummary:
    """One task in one stage; speed-ups are over eager, None without a correct sample."""

    task_id: str
    samples: int
    correct: int
    mean: float | None
    best: float | None


@dataclass(frozen=True)
class Comparison:
    """How much larger the second policy's figures are than the first's; None where one side has no correct sample."""

    success: Estimate | None
    mean_over_eager: Estimate | None
    mean_over_best: Estimate | None


@dataclass(frozen=True)
class PooledComparison:
    """A comparison over several seeds: both sides' mean over the seeds, the difference, and each seed's own."""

    first: Comparison
    second: Comparison
    difference: Comparison
    per_seed: tuple[Comparison, ...]


def wilson(successes: int, samples: int) -> Estimate | None:
    """A share with its Wilson score interval (Wilson 1927); None without samples."""
    if samples == 0:
        return None
    z = float(norm.ppf(0.5 + CONFIDENCE / 2))
    share = successes / samples
    centre = (share + z * z / (2 * samples)) / (1 + z * z / samples)
    spread = z / (1 + z * z / samples) * math.sqrt(share * (1 - share) / samples + z * z / (4 * samples**2))
    # At 0 and 1 the bounds are exact; rounding must not push them past the value.
    low = 0.0 if successes == 0 else centre - spread
    high = 1.0 if successes == samples else centre + spread
    return Estimate(share, low, high, samples)


def summarise(rows: Iterable[AssessmentRow], stage: str, *, seed: int = 0) -> StageSummary:
    """The summary of a stage's samples. The same rows and seed always give the same intervals."""
    rows = list(rows)
    weights = _resample(rows, seed)
    return StageSummary(
        stage=stage,
        tasks=len({row.task_id for row in rows}),
        samples=len(rows),
        success=wilson(sum(row.is_correct for row in rows), len(rows)),
        correct=len({row.task_id for row in rows if row.is_correct}),
        over_eager=_speeds(_values(row.over_eager for row in rows), weights),
        over_best=_speeds(_values(row.over_best for row in rows), weights),
        improved=wilson(sum((row.over_best or 0.0) > FASTER for row in rows), len(rows)),
        faster=wilson(sum((row.over_eager or 0.0) > FASTER for row in rows), len(rows)),
        copies=_copies(rows),
    )


def _copies(rows: Sequence[AssessmentRow]) -> Estimate | None:
    """The share that is correct and the reference again; None where a correct sample was not looked at."""
    if any(row.is_correct and row.copy_of is None for row in rows):
        return None
    return wilson(sum(row.is_correct and row.copy_of == REFERENCE for row in rows), len(rows))


def per_task(rows: Iterable[AssessmentRow]) -> list[TaskSummary]:
    """One summary a task, by the task's id."""
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


def compare(first: Sequence[AssessmentRow], second: Sequence[AssessmentRow], *, seed: int = 0) -> Comparison:
    """Second minus first: success rate and mean speed-ups, with bootstrap intervals; an interval above 0 is a gain."""
    return _difference(_draws(first, 2 * seed), _draws(second, 2 * seed + 1))


def overall(rows: Sequence[AssessmentRow], *, seed: int = 0) -> Estimate | None:
    """The geometric mean of the speed-up over eager of all samples, where one that is not correct counts as 1, since
    the reference is kept in its place. Unlike a mean over correct samples it does not rise when slow ones fail. None
    without samples."""
    if not rows:
        return None
    value, draws = _kept(rows, seed)
    return _estimate(math.exp(value), np.exp(draws), len(rows))


def overall_gain(first: Sequence[AssessmentRow], second: Sequence[AssessmentRow], *, seed: int = 0) -> Estimate | None:
    """How many times the first's `overall` the second's is; None where one side has no samples."""
    if not first or not second:
        return None
    (a, draws_a), (b, draws_b) = _kept(first, 2 * seed), _kept(second, 2 * seed + 1)
    return _estimate(math.exp(b - a), np.exp(draws_b - draws_a), min(len(first), len(second)))


def _kept(rows: Sequence[AssessmentRow], seed: int) -> tuple[float, Floats]:
    """The mean logarithm of what `overall` is of, and its resamples [RESAMPLES]."""
    logs = np.log([row.over_eager or 1.0 for row in rows])
    return float(logs.mean()), _weighted_mean(logs, _resample(rows, seed))


def compare_seeds(
    first: Sequence[Sequence[AssessmentRow]], second: Sequence[Sequence[AssessmentRow]], *, seed: int = 0
) -> PooledComparison:
    """Second minus first over several training seeds; `first[i]` and `second[i]` are of the same seed.

    The means over seeds and their difference have intervals from a hierarchical bootstrap: every resample draws seeds
    anew (the same for both sides, which are paired) and samples anew within each seed's tasks. With few seeds this is
    the honest interval for "another set of seeds"; each seed's own difference stands beside it.
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"both sides must have the same seeds, at least one; got {len(first)} and {len(second)}")
    ours = [_draws(rows, 2 * (seed + 1000 * index)) for index, rows in enumerate(first)]
    theirs = [_draws(rows, 2 * (seed + 1000 * index) + 1) for index, rows in enumerate(second)]
    per_seed = tuple(_difference(a, b) for a, b in zip(ours, theirs, strict=True))
    chosen = np.random.default_rng(seed).integers(len(first), size=(RESAMPLES, len(first)))
    a, b = _over_seeds(ours, chosen), _over_seeds(theirs, chosen)
    nothing = tuple((0.0, np.zeros(RESAMPLES), n) for _, _, n in a)
    return PooledComparison(_difference(nothing, a), _difference(nothing, b), _difference(a, b), per_seed)


Draws = tuple[tuple[float | None, Floats, int], ...]
"""For success, mean over eager and mean over best: the value, its resamples [RESAMPLES] (NaN: no correct sample in the
resample), and the number of samples behind it."""


def _draws(rows: Sequence[AssessmentRow], seed: int) -> Draws:
    weights = _resample(rows, seed)
    columns = [
        np.array([float(row.is_correct) for row in rows]),
        _values(row.over_eager for row in rows),
        _values(row.over_best for row in rows),
    ]
    draws = []
    for values in columns:
        known = ~np.isnan(values)
        value = float(values[known].mean()) if known.any() else None
        draws.append((value, _weighted_mean(values[known], weights[:, known]), int(known.sum())))
    return tuple(draws)


def _over_seeds(sides: Sequence[Draws], chosen: NDArray[np.int64]) -> Draws:
    """The mean over the seeds that have a value, and over those drawn in each resample."""
    pooled = []
    for column in zip(*sides, strict=True):
        values = [value for value, _, _ in column if value is not None]
        resamples = np.stack([draws for _, draws, _ in column])[chosen.T, np.arange(RESAMPLES)]  # [seeds, resamples]
        value = sum(values) / len(values) if values else None
        pooled.append((value, _mean_of_known(resamples), sum(n for _, _, n in column)))
    return tuple(pooled)


def _difference(first: Draws, second: Draws) -> Comparison:
    estimates: list[Estimate | None] = []
    for (a, draws_a, n_a), (b, draws_b, n_b) in zip(first, second, strict=True):
        estimates.append(None if a is None or b is None else _estimate(b - a, draws_b - draws_a, min(n_a, n_b)))
    return Comparison(*estimates)


def _values(speeds: Iterable[float | None]) -> Floats:
    """[samples], NaN for a sample without a speed-up."""
    return np.array([math.nan if speed is None else speed for speed in speeds], dtype=np.float64)


def _resample(rows: Sequence[AssessmentRow], seed: int) -> Floats:
    """How much each sample weighs in each resample: [RESAMPLES, samples].

    Within a task of n samples, n - 1 are drawn with replacement and weigh n / (n - 1): drawing n would understate the
    variance by that factor, a quarter of it at four samples a task (Rao and Wu 1988). Tasks of one sample say nothing
    about their own spread, so they are drawn from together, which overstates it.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        groups[row.task_id].append(index)
    single = [members[0] for members in groups.values() if len(members) == 1]
    strata = [members for members in groups.values() if len(members) > 1] + ([single] if single else [])
    generator = np.random.default_rng(seed)
    weights = np.ones((RESAMPLES, len(rows)))
    for members in strata:
        n = len(members)
        if n > 1:
            counts = generator.multinomial(n - 1, np.full(n, 1 / n), size=RESAMPLES)
            weights[:, members] = counts * (n / (n - 1))
    return weights


def _speeds(values: Floats, weights: Floats) -> SpeedSummary:
    known = ~np.isnan(values)
    values, weights = values[known], weights[:, known]
    if not len(values):
        return SpeedSummary()
    logs = np.log(values)
    n = len(values)
    return SpeedSummary(
        mean=_estimate(float(values.mean()), _weighted_mean(values, weights), n),
        median=_estimate(float(np.median(values)), _weighted_median(values, weights), n),
        geometric_mean=_estimate(float(np.exp(logs.mean())), np.exp(_weighted_mean(logs, weights)), n),
    )


def _weighted_mean(values: Floats, weights: Floats) -> Floats:
    """[RESAMPLES]; NaN for a resample in which no value has weight."""
    total = weights.sum(axis=1)
    means: Floats = np.divide(weights @ values, total, out=np.full(len(total), np.nan), where=total > 0)
    return means


def _weighted_median(values: Floats, weights: Floats) -> Floats:
    """[RESAMPLES]; the mean of the two middle values where the weight splits evenly between them, as in a median."""
    order = np.argsort(values)
    cumulative = weights[:, order].cumsum(axis=1)
    half = cumulative[:, -1:] / 2
    lower = (cumulative >= half - 1e-9).argmax(axis=1)
    upper = (cumulative > half + 1e-9).argmax(axis=1)
    medians = (values[order][lower] + values[order][upper]) / 2
    return np.where(half[:, 0] > 0, medians, np.nan)


def _mean_of_known(draws: Floats) -> Floats:
    """Mean over the first axis, NaN left out."""
    known = ~np.isnan(draws)
    count = known.sum(axis=0)
    total = np.where(known, draws, 0).sum(axis=0)
    means: Floats = np.divide(total, count, out=np.full(draws.shape[1], np.nan), where=count > 0)
    return means


def _estimate(value: float, draws: Floats, n: int) -> Estimate:
    """A value with the percentile interval of its resamples, which always contains the value."""
    known = draws[~np.isnan(draws)]
    if not len(known):
        return Estimate(value, value, value, n)
    low, high = np.quantile(known, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value, min(float(low), value), max(float(high), value), n)
