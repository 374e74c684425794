"""From bursts of calls to ratios and seconds a call, where two clocks saw every burst.

The judge's clock times the whole burst from outside and cannot be tampered with; the runner's own times each call. On a
CPU the judge's decides. On a GPU, where a call can be shorter than the way to the runner and back, the runner's events
decide and the judge's clock is the witness: time that it saw and they did not is evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import numpy as np

from evaluators.records import Estimate
from evaluators.timing.estimates import median_estimate

_HIDDEN_SECONDS = 1e-5  # a call: the way to the runner and back differs by less from side to side, most often
_CERTAIN_SECONDS = 5e-5  # a call: on an H200 no honest one missed half as much where that was a twentieth of it
_SHORTEST = 1e-9  # seconds that a call is taken to last, whatever its runner claims


@dataclass(frozen=True)
class Burst:
    """Seconds of some calls in a row: of the whole by the judge's clock, and of each call by the runner's. The first
    `warm` calls bring caches and clocks into their usual state. `waited`: seconds for which the runner's threads were
    ready and had no core."""

    judged: float
    own: tuple[float, ...]
    warm: int = 0
    waited: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of all calls by the runner's clock."""
        return max(sum(self.own), _SHORTEST)

    @property
    def typical(self) -> float:
        """Seconds of one call by the runner's clock: the mean of the middle half, which is as insensitive to a call
        that was interrupted as the median, and does not jump by the clock's resolution."""
        measured = np.sort(self.own[self.warm :])
        cut = len(measured) // 4
        return max(float(np.mean(measured[cut : len(measured) - cut])), _SHORTEST)


Pair = tuple[Burst, Burst]  # of the reference and of the candidate, neighbours in time


@dataclass(frozen=True)
class Hidden:
    """Time of the candidate's bursts that its own clock does not show: the share of what does show, the seconds a
    burst, the least of these that means anything, and what no noise explains, however small the share."""

    share: Estimate
    seconds: float
    least: float
    certain: float = math.inf


class Clock(Protocol):
    """How a device's bursts become figures.

    `offset`: seconds that a call of the reference takes longer in the candidate's process than in its own
    (`evaluators.judge.calibration`). `alone_seconds`: what a call alone may take longer than one of a burst.
    `is_of_host`: whether other work on the host delays calls, on both sides alike.
    """

    alone_seconds: float
    is_of_host: bool

    def ratios(self, pairs: Sequence[Pair], offset: float = 0.0) -> list[float]:
        """Speed-ups of the candidate, one a pair."""

    def seconds(self, pairs: Sequence[Pair], offset: float = 0.0) -> tuple[list[float], list[float]]:
        """Seconds a call of the reference and of the candidate, one a pair."""

    def hidden(self, pairs: Sequence[Pair]) -> Hidden:
        """What the two clocks differ by."""


class JudgeClock:
    """The judge's clock decides; a runner's own only ever makes it slower. Offsets of processes are far below what it
    can tell."""

    alone_seconds = 5e-5  # cold caches, the way to the runner
    is_of_host = True

    def ratios(self, pairs: Sequence[Pair], offset: float = 0.0) -> list[float]:
        # Both by the judge's clock: what slows the machine for a while must be able to hit both sides alike.
        overhead = _overhead(pairs)
        return [_without(reference, overhead) / _without(candidate, overhead) for reference, candidate in pairs]

    def seconds(self, pairs: Sequence[Pair], offset: float = 0.0) -> tuple[list[float], list[float]]:
        overhead = _overhead(pairs)
        candidates = [_without(candidate, overhead) / len(candidate.own) for _, candidate in pairs]
        return [reference.total / len(reference.own) for reference, _ in pairs], candidates

    def hidden(self, pairs: Sequence[Pair]) -> Hidden:
        overhead = _overhead(pairs)
        hidden = [candidate.judged - overhead - candidate.total for _, candidate in pairs]
        judged = [_without(candidate, overhead) for _, candidate in pairs]
        return _hidden(hidden, judged, 2e-4)


class EventClock:
    """The runner's events decide, call by call; the judge's clock must not have seen much more."""

    alone_seconds = 1.5e-5  # caches alone are cold: launching is over by the time that the events are reached
    is_of_host = False  # only a side that launches more than the device can wait for is delayed by it

    def ratios(self, pairs: Sequence[Pair], offset: float = 0.0) -> list[float]:
        return [reference / candidate for reference, candidate in zip(*self.seconds(pairs, offset), strict=True)]

    def seconds(self, pairs: Sequence[Pair], offset: float = 0.0) -> tuple[list[float], list[float]]:
        return [reference.typical for reference, _ in pairs], [_corrected(*pair, offset) for pair in pairs]

    def hidden(self, pairs: Sequence[Pair]) -> Hidden:
        hidden = [
            (candidate.judged - candidate.total) - (reference.judged - reference.total)
            for reference, candidate in pairs
        ]
        shown = [candidate.total for _, candidate in pairs]
        calls = len(pairs[0][1].own)
        return _hidden(hidden, shown, _HIDDEN_SECONDS * calls, _CERTAIN_SECONDS * calls)


def waited_more(pairs: Sequence[Pair]) -> Estimate:
    """The share of a burst for which the reference's threads waited for a core, beyond the candidate's in the burst
    beside it."""
    return median_estimate([one.waited / one.judged - other.waited / other.judged for one, other in pairs])


def _corrected(reference: Burst, candidate: Burst, offset: float) -> float:
    """Seconds of the candidate's call without its process's offset: in full where it is as long as the reference's
    (one that runs fewer kernels may have less of it)."""
    share = min(1.0, candidate.typical / reference.typical)
    return max(candidate.typical - share * offset, 0.5 * candidate.typical)


def _hidden(hidden: Sequence[float], shown: Sequence[float], least: float, certain: float = math.inf) -> Hidden:
    """Seconds of bursts that the candidate's clock missed, beside those of the same bursts that stand for it."""
    share = median_estimate([one / total for one, total in zip(hidden, shown, strict=True)])
    return Hidden(share, median(hidden), least, certain)


def _overhead(pairs: Sequence[Pair]) -> float:
    """Seconds of a burst outside its calls, which the trusted side shows. The lower quartile: other load on the machine
    only ever adds, and what is taken off too much makes a candidate fast."""
    return float(np.quantile([reference.judged - reference.total for reference, _ in pairs], 0.25))


def _without(burst: Burst, overhead: float) -> float:
    """Seconds of a burst's calls. A runner's own clock can make it slower here, never faster: without that bound, a
    call much shorter than the overhead would be the difference of two noisy numbers."""
    return max(burst.judged - overhead, min(burst.total, burst.judged), 0.01 * burst.judged)
