"""Bootstrap intervals for figures of a stage. Pure functions over arrays.

The bootstrap draws samples anew within each task, because the tasks are fixed and the samples vary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from evaluators.records import Estimate

RESAMPLES = 2000
CONFIDENCE = 0.95

Floats = NDArray[np.float64]


def as_array(values: Iterable[float | None]) -> Floats:
    """[samples], NaN in place of None."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def resample(task_ids: Sequence[str], seed: int) -> Floats:
    """The weight of each sample in each resample: [RESAMPLES, samples]. `task_ids`: of each sample.

    Within a task of n samples, n - 1 are drawn with replacement and weigh n / (n - 1). Drawing n would understate the
    variance by that factor, which is a quarter of it at four samples per task (Rao and Wu 1988). A task of one sample
    says nothing about its own spread. So the samples of all such tasks are drawn together, which overstates it.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for index, task_id in enumerate(task_ids):
        groups[task_id].append(index)
    single = [members[0] for members in groups.values() if len(members) == 1]
    strata = [members for members in groups.values() if len(members) > 1] + ([single] if single else [])
    generator = np.random.default_rng(seed)
    weights = np.ones((RESAMPLES, len(task_ids)))
    for members in strata:
        n = len(members)
        if n > 1:
            counts = generator.multinomial(n - 1, np.full(n, 1 / n), size=RESAMPLES)
            weights[:, members] = counts * (n / (n - 1))
    return weights


def weighted_mean(values: Floats, weights: Floats) -> Floats:
    """The mean of each resample: [RESAMPLES]. NaN for a resample in which no value has weight."""
    total = weights.sum(axis=1)
    return cast(Floats, np.divide(weights @ values, total, out=np.full(len(total), np.nan), where=total > 0))


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """The median of each resample: [RESAMPLES]. NaN for a resample in which no value has weight.

    If the weight splits evenly between two middle values, their mean, as in a median.
    """
    order = np.argsort(values)
    cumulative = weights[:, order].cumsum(axis=1)
    half = cumulative[:, -1:] / 2
    lower = (cumulative >= half - 1e-9).argmax(axis=1)
    upper = (cumulative > half + 1e-9).argmax(axis=1)
    medians = (values[order][lower] + values[order][upper]) / 2
    return np.where(half[:, 0] > 0, medians, np.nan)


def mean_without_nan(draws: Floats) -> Floats:
    """The mean over the first axis, without NaN. NaN if there is nothing else."""
    is_number = ~np.isnan(draws)
    count = is_number.sum(axis=0)
    total = np.where(is_number, draws, 0).sum(axis=0)
    return cast(Floats, np.divide(total, count, out=np.full(draws.shape[1], np.nan), where=count > 0))


def estimate_from(value: float, draws: Floats, n: int) -> Estimate:
    """A value with the percentile interval of its resamples. The interval always contains the value."""
    numbers = draws[~np.isnan(draws)]
    if not len(numbers):
        return Estimate(value, value, value, n)
    low, high = np.quantile(numbers, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value, min(float(low), value), max(float(high), value), n)
