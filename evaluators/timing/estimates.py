"""Estimates from paired timings, with their confidence intervals.

A speed-up is the median of the ratios of neighbouring measurements of both sides, because load that slows the machine
for a while slows both. Its interval is distribution-free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import special

from evaluators.records import Estimate

CONFIDENCE = 0.95


@lru_cache(maxsize=4096)
def _interval_ranks(n: int, confidence: float) -> tuple[int, float]:
    """Where the interval of the median of n ordered values begins: the zero-based rank d of a value, and which share of
    the way to the next value to go.

    The interval from there to its mirror image contains the median with probability `confidence`.
    """
    # The interval from rank d to n - 1 - d misses the median only if at most d of the values lie on one side of it.
    coverage = [1 - 2 * float(special.bdtr(rank, n, 0.5)) for rank in range((n + 1) // 2)]
    wide = [rank for rank, probability in enumerate(coverage) if probability >= confidence]
    if not wide:
        return 0, 0.0
    d = wide[-1]
    if 2 * (d + 1) >= n:
        return d, 0.0
    share = (coverage[d] - confidence) / (coverage[d] - coverage[d + 1])
    order = d + 1
    return d, (n - order) * share / (order + (n - 2 * order) * share)


def median_estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The median and its interval by order statistics.

    No pair of order statistics has exactly the wanted confidence, so the ends are interpolated between two of them
    (Hettmansperger and Sheather, Statistics & Probability Letters 4, 1986). With fewer than 6 values no such interval
    reaches 95 %; then it is that of the smallest and the largest value. Raises ValueError without values.
    """
    if not values:
        raise ValueError("no values to estimate from")
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    rank, weight = _interval_ranks(n, confidence)
    inner = min(rank + 1, n - 1)
    low = min(ordered[rank] + weight * (ordered[inner] - ordered[rank]), ordered[inner])  # rounding must not pass it
    high = max(ordered[-1 - rank] + weight * (ordered[-1 - inner] - ordered[-1 - rank]), ordered[-1 - inner])
    return Estimate(float(np.median(ordered)), float(low), float(high), n)


def calibrated_estimate(values: Sequence[Sequence[float]], confidence: float = CONFIDENCE) -> Estimate:
    """The estimate from n measurements, each corrected by each of m calibrations: `values[calibration][measurement]`.

    It is the median of all n x m values, which is Hodges and Lehmann's estimate of the shift between two samples. Its
    interval belongs to the rank test of that shift (Moses; Hollander and Wolfe, Nonparametric Statistical Methods,
    section 4.3, large-sample form). So it includes the uncertainty of the calibration, provided that both samples
    scatter alike: if calibrations scatter more, it is too narrow. A single calibration is taken to be exact.

    Raises ValueError without values.
    """
    if len(values) == 1:
        return median_estimate(values[0], confidence)
    ordered = np.sort(np.asarray(values, dtype=np.float64).ravel())
    m, n = len(values), len(values[0]) if values else 0
    if not m * n:
        raise ValueError("no values to estimate from")
    z = float(special.ndtri((1 + confidence) / 2))
    rank = max(0, math.floor(m * n / 2 - z * math.sqrt(m * n * (m + n + 1) / 12)))
    return Estimate(float(np.median(ordered)), float(ordered[rank]), float(ordered[m * n - 1 - rank]), n)


def divide(numerator: Estimate, denominator: Estimate) -> Estimate:
    """The ratio of two independent positive estimates. Half-widths add in quadrature on the log scale."""
    value = numerator.value / denominator.value

    def half_width(estimate: Estimate, bound: float) -> float:
        return math.log(max(bound, 1e-12) / estimate.value)

    low = math.hypot(half_width(numerator, numerator.low), half_width(denominator, denominator.high))
    high = math.hypot(half_width(numerator, numerator.high), half_width(denominator, denominator.low))
    return Estimate(value, value * math.exp(-low), value * math.exp(high), min(numerator.n, denominator.n))


# Standard deviation of the median of so many normal values, relative to that of one value.
_MEDIAN_SD = {1: 1.0, 2: 0.707, 3: 0.670, 4: 0.546, 5: 0.536}


def combine(estimates: Sequence[Estimate], spread: float) -> Estimate:
    """One estimate out of those of up to five pairs of processes.

    `spread`: the relative standard deviation between pairs, which their own intervals do not contain. The value is the
    median, so that one odd pair does not decide. The interval contains both kinds of uncertainty. Raises KeyError for
    more than five, ValueError for none.
    """
    if not estimates:
        raise ValueError("no estimates to combine")
    value = float(np.median([estimate.value for estimate in estimates]))
    scale = _MEDIAN_SD[len(estimates)]
    between = float(special.ndtri((1 + CONFIDENCE) / 2)) * spread * value
    low = math.hypot(float(np.mean([estimate.value - estimate.low for estimate in estimates])), between) * scale
    high = math.hypot(float(np.mean([estimate.high - estimate.value for estimate in estimates])), between) * scale
    return Estimate(value, value - low, value + high, sum(estimate.n for estimate in estimates))
