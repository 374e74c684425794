"""What several samples are worth together: pass@k, and the speed of the best of k. Pure functions over rows.

Both are exact expectations over all subsets of k of a task's samples. Nothing is drawn at random.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from evaluators.records import Estimate
from orchestration.report.bootstrap import estimate_from, resample, weighted_mean
from orchestration.report.shares import mean_share
from orchestration.report.statistics import AssessmentRow

SIZES = (1, 4, 8, 16)


@dataclass(frozen=True)
class DrawSummary:
    """Means over tasks, with their intervals over tasks. `tasks`: those with at least `k` samples.

    `correct`, `faster`: pass@k for correct samples, and for those that are faster than eager and no copies (None if
    that is unknown). `best`: the speed-up over eager of the fastest of k samples, as a geometric mean, where a sample
    that is not correct counts as 1; for k = 1 it is `orchestration.report.comparison.overall`.
    """

    k: int
    tasks: int
    correct: Estimate | None
    faster: Estimate | None
    best: Estimate


def pass_at(k: int, samples: int, passed: int) -> float:
    """The probability that at least one of `k` samples passes, of `samples` of which `passed` do (Chen et al. 2021,
    arXiv 2107.03374, equation 1): unbiased, unlike 1 - (1 - passed / samples)^k. Raises ValueError if k > samples."""
    if not 0 < k <= samples:
        raise ValueError(f"pass@{k} needs at least {k} samples, got {samples}")
    return 1.0 - math.comb(samples - passed, k) / math.comb(samples, k)


def best_of(k: int, values: Sequence[float]) -> float:
    """The expected largest of `k` of the values, drawn without replacement.

    The i-th smallest of n values is the largest of C(i - 1, k - 1) of the C(n, k) subsets. Raises ValueError if there
    are fewer than k values.
    """
    if not 0 < k <= len(values):
        raise ValueError(f"the best of {k} needs at least {k} values, got {len(values)}")
    subsets = math.comb(len(values), k)
    return math.fsum(value * math.comb(index, k - 1) / subsets for index, value in enumerate(sorted(values)))


def summarise_draws(rows: Iterable[AssessmentRow]) -> list[DrawSummary]:
    """A summary for each of `SIZES` for which at least half of the tasks have enough samples."""
    by_task: dict[str, list[AssessmentRow]] = defaultdict(list)
    for row in rows:
        by_task[row.task_id].append(row)
    summaries = []
    for k in SIZES:
        enough = [of_task for of_task in by_task.values() if len(of_task) >= k]
        if enough and 2 * len(enough) >= len(by_task):
            summaries.append(_summarise(k, enough))
    return summaries


def _summarise(k: int, tasks: Sequence[Sequence[AssessmentRow]]) -> DrawSummary:
    def passing(passes: Callable[[AssessmentRow], bool]) -> Estimate | None:
        return mean_share([pass_at(k, len(rows), sum(map(passes, rows))) for rows in tasks])

    logs = np.array([best_of(k, [math.log(row.over_eager or 1.0) for row in rows]) for rows in tasks])
    (weights,) = resample([[rows[0].task_id for rows in tasks]], seed=0)
    is_checked = all(row.copy_of is not None for rows in tasks for row in rows if row.is_correct)
    return DrawSummary(
        k,
        len(tasks),
        correct=passing(lambda row: row.is_correct),
        faster=passing(lambda row: row.is_faster and not row.copy_of) if is_checked else None,
        best=estimate_from(math.exp(logs.mean()), np.exp(weighted_mean(logs, weights)), len(tasks)),
    )
