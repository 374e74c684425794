"""How one policy's samples compare with another's, each figure with its 95 % bootstrap interval. Pure functions.

Intervals are over tasks, unless `over` says samples (`orchestration.report.bootstrap`). Both sides then get the same
draws of tasks: what is compared is what the two policies make of one task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from evaluators.records import Estimate
from orchestration.report.bootstrap import (
    RESAMPLES,
    Floats,
    Level,
    as_array,
    estimate_from,
    mean_without_nan,
    resample,
    weighted_mean,
)
from orchestration.report.statistics import AssessmentRow

Rows = Sequence[AssessmentRow]
Side = TypeVar("Side")


@dataclass(frozen=True)
class Comparison:
    """How much larger the second policy's figures are than the first's; None if one side has no correct sample."""

    success: Estimate | None
    mean_over_eager: Estimate | None
    mean_over_best: Estimate | None


@dataclass(frozen=True)
class PooledComparison:
    """A comparison over several seeds: the mean of each side over the seeds, the difference, and that of each seed."""

    first: Comparison
    second: Comparison
    difference: Comparison
    per_seed: tuple[Comparison, ...]


def compare(first: Rows, second: Rows, over: Level = "tasks") -> Comparison:
    """Second minus first: success rate and mean speed-ups. An interval above 0 is a gain."""
    one, other = _weighted(first, second, over=over)
    return _difference(_draws(*one), _draws(*other))


def overall(rows: Rows, over: Level = "tasks") -> Estimate | None:
    """The geometric mean of the speed-up over eager of all samples. A sample that is not correct counts as 1, because
    the reference is kept in its place.

    Unlike a mean over correct samples, it does not rise if slow programs fail. None without samples.
    """
    if not rows:
        return None
    value, draws = _mean_logarithm(*_weighted(rows, over=over)[0])
    return estimate_from(math.exp(value), np.exp(draws), len(rows))


def overall_gain(first: Rows, second: Rows, over: Level = "tasks") -> Estimate | None:
    """The second's `overall` divided by the first's. None if one side has no samples."""
    return pooled_gain([first], [second], over)


def pooled_gain(first: Sequence[Rows], second: Sequence[Rows], over: Level = "tasks") -> Estimate | None:
    """`overall_gain` over several training seeds. `first[i]` and `second[i]` must have the same training seed.

    The value is the geometric mean of the seeds' gains. Every resample draws seeds, and tasks or samples. Seeds share
    their tasks, so a drawn task is drawn for all of them. None if a side of a seed has no samples. Raises ValueError as
    `compare_seeds` does.
    """
    _check_seeds(first, second)
    if not all([*first, *second]):
        return None
    sides = [_mean_logarithm(*side) for side in _weighted(*first, *second, over=over)]
    gains = [(b - a, draws_b - draws_a) for (a, draws_a), (b, draws_b) in _pairs(sides)]
    value = float(np.mean([gain for gain, _ in gains]))
    pooled = mean_without_nan(_chosen([draws for _, draws in gains]))
    return estimate_from(math.exp(value), np.exp(pooled), min(map(len, [*first, *second])))


def compare_seeds(first: Sequence[Rows], second: Sequence[Rows], over: Level = "tasks") -> PooledComparison:
    """Second minus first over several training seeds. `first[i]` and `second[i]` must have the same training seed.

    The means over seeds and their difference have intervals from a bootstrap over seeds, and over tasks or samples.
    Every resample draws seeds (the same for both sides, which are paired). A drawn task is drawn for all seeds, which
    share their tasks; samples are drawn within each seed's tasks. With few seeds, this is the honest interval for
    another set of seeds. Each seed's own difference is given, too. Raises ValueError if there are no seeds, or not as
    many on both sides.
    """
    _check_seeds(first, second)
    sides = [_draws(*side) for side in _weighted(*first, *second, over=over)]
    per_seed = tuple(_difference(a, b) for a, b in _pairs(sides))
    a, b = _pool_seeds(sides[: len(first)]), _pool_seeds(sides[len(first) :])
    zeros = tuple((0.0, np.zeros(RESAMPLES), n) for _, _, n in a)
    return PooledComparison(_difference(zeros, a), _difference(zeros, b), _difference(a, b), per_seed)


Draws = tuple[tuple[float | None, Floats, int], ...]
"""For success, mean over eager and mean over best: the value, its resamples [RESAMPLES] (NaN if a resample has no
correct sample), and the number of samples behind it."""


def _check_seeds(first: Sequence[Rows], second: Sequence[Rows]) -> None:
    if len(first) != len(second) or not first:
        raise ValueError(f"both sides must have the same seeds, at least one; got {len(first)} and {len(second)}")


def _weighted(*sides: Rows, over: Level) -> list[tuple[Rows, Floats]]:
    """Each side with its weights [RESAMPLES, samples]. Over tasks, all sides have the same draws."""
    return list(zip(sides, resample([[row.task_id for row in rows] for rows in sides], 0, over), strict=True))


def _pairs(sides: Sequence[Side]) -> list[tuple[Side, Side]]:
    """Of the first sides of all seeds, followed by the second ones: both sides of each seed."""
    half = len(sides) // 2
    return list(zip(sides[:half], sides[half:], strict=True))


def _draws(rows: Rows, weights: Floats) -> Draws:
    columns = [
        np.array([float(row.is_correct) for row in rows]),
        as_array(row.over_eager for row in rows),
        as_array(row.over_best for row in rows),
    ]
    draws = []
    for values in columns:
        is_number = ~np.isnan(values)
        value = float(values[is_number].mean()) if is_number.any() else None
        draws.append((value, weighted_mean(values[is_number], weights[:, is_number]), int(is_number.sum())))
    return tuple(draws)


def _mean_logarithm(rows: Rows, weights: Floats) -> tuple[float, Floats]:
    """The mean logarithm of the speed-ups that `overall` averages, and its resamples [RESAMPLES]."""
    logs = np.log([row.over_eager or 1.0 for row in rows])
    return float(logs.mean()), weighted_mean(logs, weights)


def _chosen(draws: Sequence[Floats]) -> Floats:
    """The resamples of the seeds that each resample draws: [drawn seeds, RESAMPLES], of [RESAMPLES] for each seed.

    One seed less is drawn than there are, which makes the variance of the mean right (Rao and Wu 1988).
    """
    seeds = len(draws)
    chosen = np.random.default_rng(0).integers(seeds, size=(RESAMPLES, max(seeds - 1, 1)))
    return np.stack(draws)[chosen.T, np.arange(RESAMPLES)]


def _pool_seeds(sides: Sequence[Draws]) -> Draws:
    """The mean over the seeds that have a value, and in each resample over the seeds that it draws."""
    pooled = []
    for column in zip(*sides, strict=True):
        values = [value for value, _, _ in column if value is not None]
        value = sum(values) / len(values) if values else None
        resamples = mean_without_nan(_chosen([draws for _, draws, _ in column]))
        pooled.append((value, resamples, sum(n for _, _, n in column)))
    return tuple(pooled)


def _difference(first: Draws, second: Draws) -> Comparison:
    estimates: list[Estimate | None] = []
    for (a, draws_a, n_a), (b, draws_b, n_b) in zip(first, second, strict=True):
        estimates.append(None if a is None or b is None else estimate_from(b - a, draws_b - draws_a, min(n_a, n_b)))
    return Comparison(*estimates)
