"""Turns bursts of calls, which two clocks saw, into speed-ups and seconds per call.

The judge's clock times the whole burst from outside, and no candidate can tamper with it. The runner's clock times each
call. On a CPU the judge's clock decides. On a GPU a call can be shorter than the way to the runner and back, so the
runner's events decide and the judge's clock is the witness: time that it saw and the events did not is evidence. A
runner's clock must never make its program faster than the judge's clock supports.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import numpy as np

from evaluators.records import Estimate
from evaluators.timing.bursts import SHORTEST, Burst, BurstPair, without_offset
from evaluators.timing.estimates import median_estimate
from evaluators.timing.supported import supported_alone, supported_speedup

_LONG_BURST = 0.02  # seconds of a burst, of which sending the request and waking the process is less than a hundredth
_LEAST_AGAIN = 3  # pairs
_HIDDEN_SECONDS = 1e-5  # per call; the way to the runner and back usually differs by less between the sides
# Per call. On an H200, the events of no honest program missed half of this while that was 5 % of the burst or more.
_CERTAIN_SECONDS = 5e-5


@dataclass(frozen=True)
class Hidden:
    """Time of the candidate's bursts that the runner's clock did not show and the judge's did.

    `share`: of the time that does count as the burst's. `seconds`: per burst. `least`: fewer seconds mean nothing.
    `certain`: no noise explains more seconds, however small their share.
    """

    share: Estimate
    seconds: float
    least: float
    certain: float = math.inf


class Clock(Protocol):
    """How a device's bursts become figures.

    `offset`: seconds that a call of the reference takes longer in the candidate's process than in its own
    (`evaluators.judge.calibration`). `alone_seconds`: how much longer a single call may take than one of a burst.
    `is_of_host`: whether the runner's clock runs on while the runner waits for a core.
    """

    alone_seconds: float
    is_of_host: bool

    def ratios(self, pairs: Sequence[BurstPair], offset: float = 0.0) -> list[float]:
        """Speed-ups of the candidate, one per pair."""

    def seconds(self, pairs: Sequence[BurstPair], offset: float = 0.0) -> tuple[list[float], list[float]]:
        """Seconds per call of the reference and of the candidate, one number per pair."""

    def hidden(self, pairs: Sequence[BurstPair]) -> Hidden:
        """The difference between the two clocks."""

    def supported(self, pairs: Sequence[BurstPair], alone: Sequence[BurstPair]) -> list[Estimate | None]:
        """The speed-up by the judge's clock alone, as far as it tells: from bursts of two lengths, and from pairs of
        single calls (`alone`)."""

    def needs_two_lengths(self, seconds: float) -> bool:
        """Whether bursts that take `seconds` need others beside them that are twice as long."""


class JudgeClock:
    """The clock of a CPU: the judge's decides. A runner's clock can only make its program slower.

    Offsets of processes are far below the resolution of this clock, so they are ignored.
    """

    alone_seconds = 5e-5  # cold caches, the way to the runner
    is_of_host = True

    def ratios(self, pairs: Sequence[BurstPair], offset: float = 0.0) -> list[float]:
        # Both sides by the judge's clock: other load on the machine must be able to slow both alike.
        return [
            _without(reference, overhead) / _without(candidate, overhead)
            for reference, candidate, overhead in _with_overheads(pairs)
        ]

    def seconds(self, pairs: Sequence[BurstPair], offset: float = 0.0) -> tuple[list[float], list[float]]:
        candidates = [
            _without(candidate, overhead) / len(candidate.own) for _, candidate, overhead in _with_overheads(pairs)
        ]
        return [reference.total / len(reference.own) for reference, _ in pairs], candidates

    def hidden(self, pairs: Sequence[BurstPair]) -> Hidden:
        # A burst is paid by the judge's clock, so a program gains nothing by waiting for its core outside of its calls.
        judged = [_without(candidate, overhead) for _, candidate, overhead in _with_overheads(pairs)]
        waited = [candidate.waited - reference.waited for reference, candidate in pairs]
        missed = [more - max(0.0, wait) for more, wait in zip(_missed_more(pairs), waited, strict=True)]
        return _hidden(missed, judged, 2e-4)

    def supported(self, pairs: Sequence[BurstPair], alone: Sequence[BurstPair]) -> list[Estimate | None]:
        single = alone or [pair for pair in pairs if len(pair[0].own) == 1]
        return [supported_speedup(pairs), supported_alone(self.ratios(single))]

    def needs_two_lengths(self, seconds: float) -> bool:
        return seconds < _LONG_BURST


class EventClock:
    """The clock of a GPU: the runner's events decide, call by call. The judge's clock must not have seen much more."""

    alone_seconds = 1.5e-5  # for cold caches alone: launching is over when the GPU reaches the first event
    is_of_host = False  # the host delays only a side whose launches take longer than the GPU needs to run them

    def ratios(self, pairs: Sequence[BurstPair], offset: float = 0.0) -> list[float]:
        return [reference / candidate for reference, candidate in zip(*self.seconds(pairs, offset), strict=True)]

    def seconds(self, pairs: Sequence[BurstPair], offset: float = 0.0) -> tuple[list[float], list[float]]:
        return [reference.typical for reference, _ in pairs], [
            without_offset(candidate.typical, reference.typical, offset) for reference, candidate in pairs
        ]

    def hidden(self, pairs: Sequence[BurstPair]) -> Hidden:
        shown = [candidate.total for _, candidate in pairs]
        calls = median(len(candidate.own) for _, candidate in pairs)  # slow programs get shorter bursts
        return _hidden(_missed_more(pairs), shown, _HIDDEN_SECONDS * calls, _CERTAIN_SECONDS * calls)

    def supported(self, pairs: Sequence[BurstPair], alone: Sequence[BurstPair]) -> list[Estimate | None]:
        return []

    def needs_two_lengths(self, seconds: float) -> bool:
        return False


def waited_more(pairs: Sequence[BurstPair]) -> Estimate:
    """The share of a burst for which the reference's threads waited for a core, less the candidate's share in the
    burst beside it."""
    return median_estimate(
        [reference.waited / reference.judged - candidate.waited / candidate.judged for reference, candidate in pairs]
    )


def slowed_by(pairs: Sequence[BurstPair], *, by_host: bool) -> Estimate | None:
    """How many times as long the first burst of a pair took as the second; None without enough pairs. Both are the
    reference's, whose own clock can be believed. `by_host`: that clock runs on while the reference waits for a core."""
    if len(pairs) < _LEAST_AGAIN:
        return None
    if not by_host:
        return median_estimate([first.typical / second.typical for first, second in pairs])
    seconds = [[max(burst.total - burst.waited, SHORTEST) / len(burst.own) for burst in pair] for pair in pairs]
    return median_estimate([first / second for first, second in seconds])


def slowed_since(before: Sequence[float], pairs: Sequence[BurstPair]) -> Estimate | None:
    """How many times as long a call of the reference takes as before the candidate was loaded. `before`: its seconds by
    its own clock, a number a burst. None without enough of them."""
    if len(before) < _LEAST_AGAIN:
        return None
    was, now = median_estimate(before), median_estimate([reference.typical for reference, _ in pairs])
    return Estimate(now.value / was.value, now.low / was.high, now.high / was.low, len(pairs))


def _hidden(hidden: Sequence[float], shown: Sequence[float], least: float, certain: float = math.inf) -> Hidden:
    """`hidden`: seconds of each burst that the candidate's clock missed. `shown`: seconds that count as the burst's."""
    share = median_estimate([seconds / total for seconds, total in zip(hidden, shown, strict=True)])
    return Hidden(share, median(hidden), least, certain)


def _missed_more(pairs: Sequence[BurstPair]) -> list[float]:
    """Seconds that the runner's clock missed of the candidate's bursts, less those of the reference's burst beside it:
    a wait for a core, which other load causes, comes on both sides."""
    return [
        (candidate.judged - candidate.total) - (reference.judged - reference.total) for reference, candidate in pairs
    ]


def _with_overheads(pairs: Sequence[BurstPair]) -> list[tuple[Burst, Burst, float]]:
    """The bursts of both sides with the seconds outside a burst's calls, measured on the trusted reference in bursts of
    the same length.

    It is the lower quartile, since other load on the machine only ever adds to it, and since taking off too much would
    make a candidate faster.
    """
    outside: dict[int, list[float]] = defaultdict(list)
    for reference, _ in pairs:
        outside[len(reference.own)].append(reference.judged - reference.total)
    quartiles = {calls: float(np.quantile(seconds, 0.25)) for calls, seconds in outside.items()}
    return [(reference, candidate, quartiles[len(reference.own)]) for reference, candidate in pairs]


def _without(burst: Burst, overhead: float) -> float:
    """Seconds of a burst's calls: the judge's, less the overhead, but no fewer than the runner's clock shows.

    So the runner's clock can make its program slower, never faster. Without that bound, a call much shorter than the
    overhead would be the difference of two noisy numbers.
    """
    return max(burst.judged - overhead, min(burst.total, burst.judged), 0.01 * burst.judged)
