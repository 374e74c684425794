"""Shares of samples, with 95 % confidence intervals that know that samples of one task are alike. Pure functions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from evaluators.records import Estimate
from orchestration.report.bootstrap import student

_Z = student(math.inf)


def wilson(share: float, samples: float) -> tuple[float, float]:
    """The Wilson score interval of a share of independent samples (Wilson 1927). `samples` need not be whole."""
    scale = 1 + _Z**2 / samples
    middle = (share + _Z**2 / (2 * samples)) / scale
    half = _Z / scale * math.sqrt(share * (1 - share) / samples + _Z**2 / (4 * samples**2))
    # Rounding must not put an interval beside its share.
    return max(0.0, min(middle - half, share)), min(1.0, max(middle + half, share))


def share_of(flags: Sequence[bool], task_ids: Sequence[str]) -> Estimate | None:
    """The share of samples that are flagged, with its interval over tasks; None without samples.

    It is Wilson's interval for as many independent samples as these say as much as. Unlike a bootstrap, it has a width
    if no sample, or every sample, is flagged.
    """
    if not flags:
        return None
    samples, share = len(flags), sum(flags) / len(flags)
    excess: dict[str, float] = defaultdict(float)
    for flag, task_id in zip(flags, task_ids, strict=True):
        excess[task_id] += flag - share
    tasks = len(excess)
    if tasks < 2:  # a single task says nothing about others: its samples count
        return Estimate(share, *wilson(share, samples), samples)
    variance = tasks / (tasks - 1) * sum(value**2 for value in excess.values()) / samples**2
    return Estimate(share, *wilson(share, min(effective(share, variance, tasks), samples)), samples)


def mean_share(shares: Sequence[float]) -> Estimate | None:
    """The mean of the tasks' own shares, with its interval over tasks, as of `share_of`; None without tasks."""
    if not shares:
        return None
    tasks, mean = len(shares), sum(shares) / len(shares)
    variance = sum((value - mean) ** 2 for value in shares) / (tasks * (tasks - 1)) if tasks > 1 else 0.0
    return Estimate(mean, *wilson(mean, effective(mean, variance, tasks)), tasks)


def effective(share: float, variance: float, tasks: int) -> float:
    """How many independent samples would give a share this variance, which is that between tasks (Korn and Graubard
    1998).

    A factor makes them fewer, because a variance between few tasks is itself uncertain. If there is no variance, each
    task counts once.
    """
    if variance <= 0.0 or tasks < 2:
        return float(tasks)
    return share * (1 - share) / variance * (_Z / student(tasks - 1)) ** 2
