"""How the best programs of `evaluator.arch` do on further architectures (as CUDA-L1's table 6 does for other GPUs)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evaluators.records import Verdict
from orchestration.report.statistics import AssessmentRow, StageSummary, summarise
from orchestration.run.kernels import Kernel

PERCENTILES = (25, 75)
"""Shown beside the median."""


@dataclass(frozen=True)
class ArchSummary:
    """The programs on one architecture: one a task. `percentiles`: of the speed-ups of the right ones over eager, by
    `PERCENTILES`; `most`: the largest of them. Empty and None without a right one."""

    arch: str
    summary: StageSummary
    percentiles: tuple[float, ...]
    most: float | None


def portability_of(
    first: str,
    kernels: Iterable[Kernel],
    elsewhere: Mapping[str, Mapping[str, Verdict]],
    marks: Collection[str],
) -> tuple[ArchSummary, ...]:
    """A summary for each architecture, `first` at first. Empty if there are verdicts of that one alone.

    `kernels`: the best programs of the run, of which those of `first` count. `elsewhere`: verdicts on further
    architectures, by architecture and program. `marks`: tasks whose speed-ups mean nothing.
    """
    best = {
        kernel.candidate.digest: kernel.verdict
        for kernel in kernels
        if kernel.arch == first and kernel.task_id not in marks
    }
    further = {
        arch: {digest: verdicts[digest] for digest in best if digest in verdicts}
        for arch, verdicts in sorted(elsewhere.items())
    }
    by_arch = {first: best, **{arch: verdicts for arch, verdicts in further.items() if verdicts}}
    if len(by_arch) == 1:
        return ()
    return tuple(_summarise(arch, list(verdicts.values())) for arch, verdicts in by_arch.items())


def _summarise(arch: str, verdicts: Sequence[Verdict]) -> ArchSummary:
    rows = list(map(AssessmentRow.of, verdicts))
    speeds = [speed for row in rows if (speed := row.over_eager) is not None]
    percentiles = tuple(float(value) for value in np.percentile(speeds, PERCENTILES)) if speeds else ()
    return ArchSummary(arch, summarise(rows, arch), percentiles, max(speeds, default=None))
