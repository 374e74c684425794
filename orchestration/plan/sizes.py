"""How long candidates hold an evaluator of each GPU type: measured verdicts, cut into slices by size.

A slice is a set of tasks whose verdicts take about as long. A type that has judged nothing in a slice is taken to be as
much slower or faster there as it is on all tasks that it has in common with the type that has judged most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.cost.rates import Rate
from orchestration.plan.earlier import EarlierRun, Judged

MOST_SLICES = 8
Seconds = NDArray[np.float64]
_ByTask = Mapping[str, Seconds]


@dataclass(frozen=True)
class Sizes:
    """`weights`: [slices], shares of the candidates. `seconds`: by type, for each slice, the seconds of verdicts.
    `basis`: by type, where they are from. `lacking`: by type that has none, why not."""

    weights: Seconds
    seconds: Mapping[str, tuple[Seconds, ...]]
    basis: Mapping[str, str]
    lacking: Mapping[str, str]

    def mean(self, accelerator: str) -> float:
        """Seconds of a verdict on a type."""
        return float(self.weights @ [of_slice.mean() for of_slice in self.seconds[accelerator]])

    def longest(self, accelerator: str) -> float:
        """Seconds of the longest verdict on a type."""
        return max(float(of_slice.max()) for of_slice in self.seconds[accelerator])


def measure_sizes(runs: Sequence[EarlierRun], rates: Mapping[str, Rate], types: Sequence[str], preset: str) -> Sizes:
    """The sizes on each of `types`, at a preset: from the verdicts of runs, else from the table of rates."""
    by_type = {name: _by_task(runs, name, preset) for name in types}
    measured = {name: tasks for name, tasks in by_type.items() if tasks}
    basis = {name: _describe(runs, name, preset) for name in measured}
    if measured:
        most = max(measured, key=lambda name: sum(map(len, measured[name].values())))
        reference, groups = measured[most], _cut(measured[most])
    else:  # the rates alone: one slice, whose candidates all take the mean
        reference, groups = {}, []
    counts = [sum(len(reference[task]) for task in group) for group in groups] or [1]
    seconds = {name: tuple(_of_groups(tasks, reference, groups)) for name, tasks in measured.items()}
    lacking: dict[str, str] = {}
    for name in types:
        if name in measured:
            continue
        rate = rates.get(name)
        if rate is None or rate.preset != preset:
            lacking[name] = f"no run and no rate says how long {name} takes for a candidate at preset {preset}"
            continue
        mean = 3600.0 / rate.evaluations_an_hour
        seconds[name] = tuple(_like(reference, groups, mean)) if groups else (np.array([mean]),)
        basis[name] = f"rate: {' '.join(rate.source.split())}"
    weights = np.array(counts, dtype=np.float64)
    return Sizes(weights / weights.sum(), seconds, basis, lacking)


def _by_task(runs: Sequence[EarlierRun], accelerator: str, preset: str) -> _ByTask:
    found: dict[str, list[float]] = defaultdict(list)
    for one in _verdicts(runs, accelerator, preset):
        found[one.task].append(one.seconds)
    return {task: np.array(seconds) for task, seconds in found.items()}


def _verdicts(runs: Sequence[EarlierRun], accelerator: str, preset: str) -> list[Judged]:
    return [one for run in runs for one in run.judged if (one.arch, one.preset) == (accelerator, preset)]


def _describe(runs: Sequence[EarlierRun], accelerator: str, preset: str) -> str:
    names = [run.name for run in runs if _verdicts([run], accelerator, preset)]
    return f"measured: {len(_verdicts(runs, accelerator, preset)):,} verdicts of {', '.join(names)}"


def _cut(reference: _ByTask) -> list[list[str]]:
    """Tasks by the mean seconds of their verdicts, cut into at most `MOST_SLICES` groups of about as many verdicts."""
    ordered = sorted(reference, key=lambda task: (reference[task].mean(), task))
    total = sum(map(len, reference.values()))
    groups: dict[int, list[str]] = defaultdict(list)
    passed = 0
    for task in ordered:
        middle = passed + len(reference[task]) / 2
        groups[int(middle * MOST_SLICES / total)].append(task)
        passed += len(reference[task])
    return [groups[number] for number in sorted(groups)]


def _of_groups(tasks: _ByTask, reference: _ByTask, groups: Sequence[Sequence[str]]) -> list[Seconds]:
    """The seconds of a measured type, for each group."""
    common = tasks.keys() & reference.keys()
    if common:
        own = sum(len(reference[task]) * tasks[task].mean() for task in common)
        ratio = own / sum(reference[task].sum() for task in common)
    else:
        ratio = np.concatenate(list(tasks.values())).mean() / np.concatenate(list(reference.values())).mean()
    return [
        np.concatenate(own)
        if (own := [tasks[task] for task in group if task in tasks])
        else ratio * _all(reference, group)
        for group in groups
    ]


def _like(reference: _ByTask, groups: Sequence[Sequence[str]], mean: float) -> list[Seconds]:
    """The seconds of a type of which only the mean is known: those of the reference, scaled."""
    ratio = mean / np.concatenate(list(reference.values())).mean()
    return [ratio * _all(reference, group) for group in groups]


def _all(reference: _ByTask, group: Sequence[str]) -> Seconds:
    return np.concatenate([reference[task] for task in group])
