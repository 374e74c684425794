"""Bootstrap intervals for figures of a stage. Pure functions over arrays.

An interval over tasks says what other tasks of the same kind would have shown. It draws tasks, each with its samples.
An interval over samples says what other samples of these very tasks would have shown. Tasks differ far more than the
samples of a task, so the second is much narrower, and says nothing about other tasks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from evaluators.records import Estimate

RESAMPLES = 2000
CONFIDENCE = 0.95

Floats = NDArray[np.float64]
Level = Literal["tasks", "samples"]
"""What is drawn anew: tasks, or samples within each task."""


def as_array(values: Iterable[float | None]) -> Floats:
    """[samples], NaN in place of None."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def resample(sides: Sequence[Sequence[str]], seed: int, over: Level = "tasks") -> list[Floats]:
    """The weight of each sample in each resample, for each side of a comparison: [RESAMPLES, samples].

    `sides`: the task of each sample. Over tasks, all sides get the same draws, so that they are compared task by task.
    A single task says nothing about others: its interval is over its samples.
    """
    if over == "samples" or len({task_id for side in sides for task_id in side}) < 2:
        return [_draw_samples(side, [seed, index]) for index, side in enumerate(sides)]
    return _draw_tasks(sides, seed)


def draw_with_replacement(n: int, generator: np.random.Generator, draws: int = 0) -> Floats:
    """The weight of each of `n` units in each resample: [RESAMPLES, n].

    `draws` units are drawn, by default n - 1, and weigh n / draws. To draw n would understate the variance by the
    factor (n - 1) / n, which is a quarter of it for four units (Rao and Wu 1988). A single unit always weighs 1.
    """
    if n < 2:
        return np.ones((RESAMPLES, n))
    draws = draws or n - 1
    counts = generator.multinomial(draws, np.full(n, 1 / n), size=RESAMPLES)
    return cast(Floats, counts * (n / draws))


def student(freedom: float) -> float:
    """The half width of an interval in deviations, by Student's t with these degrees of freedom (inf: the normal)."""
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def draws_of_tasks(tasks: int) -> int:
    """How many of so many tasks a resample draws: one less, and still less if they are few, since an interval by the
    normal distribution would then be too narrow (Student's t)."""
    few = (student(tasks - 1) / student(math.inf)) ** 2 if tasks > 1 else 1.0
    return max(round((tasks - 1) / few), 1)


def _draw_tasks(sides: Sequence[Sequence[str]], seed: int) -> list[Floats]:
    """Tasks are drawn. A drawn task keeps all its samples.

    The samples of a drawn task are not drawn again: the spread between tasks already contains their own spread, which
    would count twice (Davison and Hinkley 1997, section 3.8). In Rao and Wu's bootstrap for two stages, the weight of
    the second stage is the share of all possible tasks that were taken, which is nothing here.
    """
    names = sorted({task_id for side in sides for task_id in side})
    place = {name: index for index, name in enumerate(names)}
    weights = draw_with_replacement(len(names), np.random.default_rng(seed), draws_of_tasks(len(names)))
    return [weights[:, [place[task_id] for task_id in side]] for side in sides]


def _draw_samples(task_ids: Sequence[str], seed: Sequence[int]) -> Floats:
    """Samples are drawn within each task.

    A task of one sample says nothing about its own spread. So the samples of all such tasks are drawn together, which
    overstates it.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for index, task_id in enumerate(task_ids):
        groups[task_id].append(index)
    single = [members[0] for members in groups.values() if len(members) == 1]
    strata = [members for members in groups.values() if len(members) > 1] + ([single] if single else [])
    generator = np.random.default_rng(seed)
    weights = np.ones((RESAMPLES, len(task_ids)))
    for members in strata:
        weights[:, members] = draw_with_replacement(len(members), generator)
    return weights


def weighted_mean(values: Floats, weights: Floats) -> Floats:
    """The mean of each resample: [RESAMPLES]. NaN for a resample in which no value has weight."""
    total = weights.sum(axis=1)
    return cast(Floats, np.divide(weights @ values, total, out=np.full(len(total), np.nan), where=total > 0))


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """The median of each resample: [RESAMPLES]. NaN for a resample in which no value has weight."""
    return weighted_quantile(values, weights, 0.5)


def weighted_quantile(values: Floats, weights: Floats, share: float) -> Floats:
    """The value below which `share` (0 to 1) of the weight of each resample lies: [RESAMPLES]. NaN for a resample in
    which no value has weight.

    If the weight splits exactly there between two values, their mean, as in a median.
    """
    order = np.argsort(values)
    cumulative = weights[:, order].cumsum(axis=1)
    place = cumulative[:, -1:] * share
    lower = (cumulative >= place - 1e-9).argmax(axis=1)
    upper = (cumulative > place + 1e-9).argmax(axis=1)
    quantiles = (values[order][lower] + values[order][upper]) / 2
    return np.where(cumulative[:, -1] > 0, quantiles, np.nan)


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
