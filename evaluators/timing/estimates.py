"""Estimates from paired timings, and the objects that decide when there are enough of them.

A speed-up is the median of ratios of neighbouring measurements of both sides, so that what slows the machine for a
while slows both. Its interval is distribution-free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import stats

from evaluators.records import Estimate

CONFIDENCE = 0.95


@lru_cache(maxsize=4096)
def _interval_ranks(n: int, confidence: float) -> tuple[int, float]:
    """The zero-based rank d of an order statistic, and how far to go from it to the next, so that what lies between
    that place and its mirror image holds the median with `confidence`."""
    # The interval from rank d to n - 1 - d holds it unless at most d of the values lie on one side of it.
    held = [1 - 2 * float(stats.binom.cdf(rank, n, 0.5)) for rank in range((n + 1) // 2)]
    wide = [rank for rank, one in enumerate(held) if one >= confidence]
    if not wide:
        return 0, 0.0
    d = wide[-1]
    if 2 * (d + 1) >= n:
        return d, 0.0
    share = (held[d] - confidence) / (held[d] - held[d + 1])
    order = d + 1
    return d, (n - order) * share / (order + (n - 2 * order) * share)


def median_estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The median and its interval by order statistics, interpolated between two of them, since no pair of them has
    exactly the wanted confidence (Hettmansperger and Sheather, Statistics & Probability Letters 4, 1986).

    Below 6 values no such interval reaches 95 %: the smallest and the largest are given. Raises ValueError for none.
    """
    if not values:
        raise ValueError("no values to estimate from")
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    rank, weight = _interval_ranks(n, confidence)
    inner = min(rank + 1, n - 1)
    low = min(ordered[rank] + weight * (ordered[inner] - ordered[rank]), ordered[inner])  # no rounding beyond either
    high = max(ordered[-1 - rank] + weight * (ordered[-1 - inner] - ordered[-1 - rank]), ordered[-1 - inner])
    return Estimate(float(np.median(ordered)), float(low), float(high), n)


def calibrated_estimate(values: Sequence[Sequence[float]], confidence: float = CONFIDENCE) -> Estimate:
    """The estimate from n measurements that were corrected by each of m calibrations, `values[j][i]`: the median of all
    n x m, which is Hodges and Lehmann's estimate of the shift between the two samples, and the interval of the rank
    test that belongs to it (Moses; Hollander and Wolfe, Nonparametric Statistical Methods, section 4.3, large-sample
    form). So what the calibration does not know is in the interval, provided that both samples scatter alike: it is too
    narrow where calibrations scatter more. One calibration is taken to be exact.

    Raises ValueError for none.
    """
    if len(values) == 1:
        return median_estimate(values[0], confidence)
    ordered = np.sort(np.asarray(values, dtype=np.float64).ravel())
    m, n = len(values), len(values[0]) if values else 0
    if not m * n:
        raise ValueError("no values to estimate from")
    z = float(stats.norm.ppf((1 + confidence) / 2))
    rank = max(0, math.floor(m * n / 2 - z * math.sqrt(m * n * (m + n + 1) / 12)))
    return Estimate(float(np.median(ordered)), float(ordered[rank]), float(ordered[m * n - 1 - rank]), n)


def divide(numerator: Estimate, denominator: Estimate) -> Estimate:
    """The ratio of two independent positive estimates; relative half-widths add in quadrature on the log scale."""
    value = numerator.value / denominator.value

    def spread(one: Estimate, bound: float) -> float:
        return math.log(max(bound, 1e-12) / one.value)

    low = math.hypot(spread(numerator, numerator.low), spread(denominator, denominator.high))
    high = math.hypot(spread(numerator, numerator.high), spread(denominator, denominator.low))
    return Estimate(value, value * math.exp(-low), value * math.exp(high), min(numerator.n, denominator.n))


# Standard deviation of the median of so many normal values, relative to one value's.
_MEDIAN_SD = {1: 1.0, 2: 0.707, 3: 0.670, 4: 0.546, 5: 0.536}


def combine(estimates: Sequence[Estimate], spread: float) -> Estimate:
    """One estimate out of those of up to five pairs of processes, which differ among each other by the relative
    standard deviation `spread` beyond their own intervals: their median, so that one odd pair does not decide, and an
    interval that holds both. Raises KeyError for more, ValueError for none."""
    if not estimates:
        raise ValueError("no estimates to combine")
    value = float(np.median([one.value for one in estimates]))
    scale = _MEDIAN_SD[len(estimates)]
    between = float(stats.norm.ppf((1 + CONFIDENCE) / 2)) * spread * value
    low = math.hypot(float(np.mean([one.value - one.low for one in estimates])), between) * scale
    high = math.hypot(float(np.mean([one.high - one.value for one in estimates])), between) * scale
    return Estimate(value, value - low, value + high, sum(one.n for one in estimates))
