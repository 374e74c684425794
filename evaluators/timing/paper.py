"""CUDA-L1's protocol for a speed-up (arXiv 2507.14111, section 2.4.4), for tables that are compared with the paper's.

Both sides run in pairs for minutes, in seven buckets. A result whose buckets differ is discarded. The speed-up is the
median of the bucket means, rounded toward 1.0. If it is too good, another GPU measures it again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean, median, pvariance

from evaluators.records import HINT, SUSPECT, Estimate, Finding

BUCKETS = 7
MAX_VARIANCE = 0.005  # between bucket means
CONFIRM_ABOVE = 3.0
CONFIRM_FACTOR = 2.0  # times the best so far
CONFIRMATION = "confirmation"
"""The kind of finding on a speed-up that another GPU did not confirm."""
MAX_DIFFERENCE = 0.10  # between two GPUs, relative to the larger speed-up


def bucket_means(ratios: Sequence[float]) -> list[float]:
    """Means of seven buckets of consecutive ratios. Raises ValueError for fewer than seven."""
    if len(ratios) < BUCKETS:
        raise ValueError(f"{len(ratios)} ratios do not fill {BUCKETS} buckets")
    edges = [round(index * len(ratios) / BUCKETS) for index in range(BUCKETS + 1)]
    return [mean(ratios[low:high]) for low, high in pairwise(edges)]


def paper_estimate(ratios: Sequence[float]) -> tuple[Estimate, Finding | None]:
    """The speed-up by the paper's protocol, and a finding if it is to be discarded.

    Its interval reaches from the lowest to the highest bucket mean. Raises ValueError for fewer than seven ratios.
    """
    means = bucket_means(ratios)
    variance = pvariance(means)
    finding = None
    if variance > MAX_VARIANCE:
        message = f"the {BUCKETS} buckets differ: variance {variance:.4f}, at most {MAX_VARIANCE} allowed"
        finding = Finding("variance", "suspect", message)
    return Estimate(toward_one(median(means)), min(means), max(means), len(ratios)), finding


def toward_one(value: float) -> float:
    """The value at two decimals, rounded toward 1.0: 1.239 becomes 1.23, and 0.811 becomes 0.82."""
    rounded = math.floor(value * 100 + 1e-9) if value >= 1 else math.ceil(value * 100 - 1e-9)
    return rounded / 100


def needs_confirmation(speedup: float, best_so_far: float | None = None) -> bool:
    """Whether a speed-up is so good that another GPU has to confirm it."""
    return speedup > CONFIRM_ABOVE or (best_so_far is not None and speedup > CONFIRM_FACTOR * best_so_far)


def agree(one: float, other: float) -> bool:
    """Whether two GPUs' speed-ups confirm each other."""
    return abs(one - other) <= MAX_DIFFERENCE * max(one, other)


def second_opinion(arch: str, speedup: float, second: float | None) -> Finding | None:
    """What another GPU's speed-up says of one that needs it: nothing if the two agree, doubt if they do not, and a hint
    if there is none."""
    if second is None:
        return Finding(CONFIRMATION, HINT, f"{speedup:.2f}x is not confirmed: no verdict of a second {arch}")
    if agree(speedup, second):
        return None
    return Finding(CONFIRMATION, SUSPECT, f"a second {arch} measured {second:.2f}x, not {speedup:.2f}x")
