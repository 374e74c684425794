"""CUDA-L1's own protocol for a speed-up (arXiv 2507.14111, section 3.3), for tables that are compared with the paper's.

Paired runs over minutes in seven buckets; a result whose buckets differ is discarded; the median of the bucket means,
rounded toward 1.0; and one that is too good is measured again on another GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean, median, pvariance

from evaluators.records import Estimate, Finding

BUCKETS = 7
MAX_VARIANCE = 0.005  # between bucket means
CONFIRM_ABOVE = 3.0
CONFIRM_FACTOR = 2.0  # times the best so far
MAX_DIFFERENCE = 0.10  # between two GPUs


def bucket_means(ratios: Sequence[float]) -> list[float]:
    """Means of seven buckets of consecutive ratios. Raises ValueError for fewer than seven."""
    if len(ratios) < BUCKETS:
        raise ValueError(f"{len(ratios)} ratios do not fill {BUCKETS} buckets")
    edges = [round(index * len(ratios) / BUCKETS) for index in range(BUCKETS + 1)]
    return [mean(ratios[low:high]) for low, high in pairwise(edges)]


def paper_estimate(ratios: Sequence[float]) -> tuple[Estimate, Finding | None]:
    """The speed-up by the paper's protocol, between its lowest and highest bucket; and why it is to be discarded."""
    means = bucket_means(ratios)
    variance = pvariance(means)
    finding = None
    if variance > MAX_VARIANCE:
        message = f"the {BUCKETS} buckets differ: variance {variance:.4f}, at most {MAX_VARIANCE} allowed"
        finding = Finding("variance", "suspect", message)
    return Estimate(toward_one(median(means)), min(means), max(means), len(ratios)), finding


def toward_one(value: float) -> float:
    """The value at two decimals, rounded toward 1.0: 1.239 is 1.23, and 0.811 is 0.82."""
    rounded = math.floor(value * 100 + 1e-9) if value >= 1 else math.ceil(value * 100 - 1e-9)
    return rounded / 100


def needs_confirmation(speedup: float, best_so_far: float | None = None) -> bool:
    """Whether a speed-up is so good that another GPU has to show it, too."""
    return speedup > CONFIRM_ABOVE or (best_so_far is not None and speedup > CONFIRM_FACTOR * best_so_far)


def agree(one: float, other: float) -> bool:
    """Whether two GPUs' speed-ups confirm each other."""
    return abs(one - other) <= MAX_DIFFERENCE * max(one, other)
