"""How one policy's samples compare with another's, each figure with its 95 % bootstrap interval. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluators.records import Estimate
from orchestration.report.bootstrap import (
    RESAMPLES,
    Floats,
    as_array,
    estimate_from,
    mean_without_nan,
    resample,
    weighted_mean,
)
from orchestration.report.statistics import AssessmentRow


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


def compare(first: Sequence[AssessmentRow], second: Sequence[AssessmentRow]) -> Comparison:
    """Second minus first: success rate and mean speed-ups. An interval above 0 is a gain."""
    return _difference(_draws(first, 0), _draws(second, 1))


def overall(rows: Sequence[AssessmentRow]) -> Estimate | None:
    """The geometric mean of the speed-up over eager of all samples. A sample that is not correct counts as 1, because
    the reference is kept in its place.

    Unlike a mean over correct samples, it does not rise if slow programs fail. None without samples.
    """
    if not rows:
        return None
    value, draws = _mean_logarithm(rows, 0)
    return estimate_from(math.exp(value), np.exp(draws), len(rows))


def overall_gain(first: Sequence[AssessmentRow], second: Sequence[AssessmentRow]) -> Estimate | None:
    """The second's `overall` divided by the first's. None if one side has no samples."""
    if not first or not second:
        return None
    (a, draws_a), (b, draws_b) = _mean_logarithm(first, 0), _mean_logarithm(second, 1)
    return estimate_from(math.exp(b - a), np.exp(draws_b - draws_a), min(len(first), len(second)))


def compare_seeds(
    first: Sequence[Sequence[AssessmentRow]], second: Sequence[Sequence[AssessmentRow]]
) -> PooledComparison:
    """Second minus first over several training seeds. `first[i]` and `second[i]` must have the same training seed.

    The means over seeds and their difference have intervals from a hierarchical bootstrap. Every resample draws seeds
    anew (the same seeds for both sides, which are paired), and samples anew within each seed's tasks. With few seeds,
    this is the honest interval for another set of seeds. Each seed's own difference is given, too. Raises ValueError if
    there are no seeds, or not as many on both sides.
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"both sides must have the same seeds, at least one; got {len(first)} and {len(second)}")
    of_first = [_draws(rows, 2000 * index) for index, rows in enumerate(first)]
    of_second = [_draws(rows, 2000 * index + 1) for index, rows in enumerate(second)]
    per_seed = tuple(_difference(a, b) for a, b in zip(of_first, of_second, strict=True))
    chosen = np.random.default_rng(0).integers(len(first), size=(RESAMPLES, len(first)))
    a, b = _pool_seeds(of_first, chosen), _pool_seeds(of_second, chosen)
    zeros = tuple((0.0, np.zeros(RESAMPLES), n) for _, _, n in a)
    return PooledComparison(_difference(zeros, a), _difference(zeros, b), _difference(a, b), per_seed)


Draws = tuple[tuple[float | None, Floats, int], ...]
"""For success, mean over eager and mean over best: the value, its resamples [RESAMPLES] (NaN if a resample has no
correct sample), and the number of samples behind it."""


def _draws(rows: Sequence[AssessmentRow], seed: int) -> Draws:
    weights = resample([row.task_id for row in rows], seed)
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


def _mean_logarithm(rows: Sequence[AssessmentRow], seed: int) -> tuple[float, Floats]:
    """The mean logarithm of the speed-ups that `overall` averages, and its resamples [RESAMPLES]."""
    logs = np.log([row.over_eager or 1.0 for row in rows])
    return float(logs.mean()), weighted_mean(logs, resample([row.task_id for row in rows], seed))


def _pool_seeds(sides: Sequence[Draws], chosen: NDArray[np.int64]) -> Draws:
    """The mean over the seeds that have a value, and in each resample over the seeds `chosen` [RESAMPLES, seeds]."""
    pooled = []
    for column in zip(*sides, strict=True):
        values = [value for value, _, _ in column if value is not None]
        resamples = np.stack([draws for _, draws, _ in column])[chosen.T, np.arange(RESAMPLES)]  # [seeds, resamples]
        value = sum(values) / len(values) if values else None
        pooled.append((value, mean_without_nan(resamples), sum(n for _, _, n in column)))
    return tuple(pooled)


def _difference(first: Draws, second: Draws) -> Comparison:
    estimates: list[Estimate | None] = []
    for (a, draws_a, n_a), (b, draws_b, n_b) in zip(first, second, strict=True):
        estimates.append(None if a is None or b is None else estimate_from(b - a, draws_b - draws_a, min(n_a, n_b)))
    return Comparison(*estimates)
