"""How good the best programs of a run are after each round of a phase that learns nothing. Pure functions over rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evaluators.records import Estimate
from evaluators.reward import FASTER
from orchestration.report.bootstrap import estimate_from, resample, weighted_mean
from orchestration.report.shares import share_of
from orchestration.report.statistics import AssessmentRow

_SHOWN = 16


@dataclass(frozen=True)
class RoundPoint:
    """The state after a round, counted from 1. `samples`: those of a task so far, as a mean. `best`: the geometric mean
    over tasks of the best speed-up over eager so far, where a task counts as 1 without a program that is faster.
    `faster`: the share of tasks with one that is faster."""

    phase: str
    round: int
    samples: float
    best: Estimate
    faster: Estimate | None


def rounds_of(phase: str, by_round: Mapping[int, Sequence[AssessmentRow]], tasks: Collection[str]) -> list[RoundPoint]:
    """A point for each round; of many rounds some, the first and the last among them. None without tasks.

    `phase`: its label. `tasks`: those that count.
    """
    names, rounds = sorted(tasks), sorted(by_round)
    if not names or not rounds:
        return []
    best, counted, points = dict.fromkeys(names, 1.0), 0, []
    for number in rounds:
        for row in by_round[number]:
            if row.task_id in best:
                counted += 1
                best[row.task_id] = max(best[row.task_id], row.over_eager or 1.0)
        points.append(_point(phase, number + 1, counted / len(names), best))
    every = -(-len(points) // _SHOWN)
    return [point for index, point in enumerate(points) if index == 0 or (len(points) - 1 - index) % every == 0]


def _point(phase: str, number: int, samples: float, best: Mapping[str, float]) -> RoundPoint:
    names = list(best)
    logs = np.log([best[name] for name in names])
    (weights,) = resample([names], seed=0)
    mean = estimate_from(float(np.exp(logs.mean())), np.exp(weighted_mean(logs, weights)), len(names))
    return RoundPoint(phase, number, samples, mean, share_of([value > FASTER for value in best.values()], names))
