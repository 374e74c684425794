"""The speed-up that the judge's clock supports by itself.

On a CPU that is from bursts of two lengths. The difference between a long burst and a short one is the time of the
calls by which they differ. Nothing that a burst costs once is in it, and no clock of the program's process is needed.
It is noisier than a burst, so it is not what is paid: it bounds what is.

On a GPU it is from calls behind gates (`evaluators.host.gate`): by what the candidate's takes longer there than the
reference's. They leave out what launching takes, since all is launched before the gate opens. Where the reference's
launches take longer than its kernels, single calls by the judge's clock bound what is paid, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from evaluators.records import Estimate
from evaluators.timing.bursts import BurstPair, without_offset
from evaluators.timing.estimates import CONFIDENCE, median_estimate

GATE_SECONDS, GATE_SHARE = 5e-6, 0.005
"""By so much, and by this share of the reference's seconds, calls behind gates may differ for other reasons than the
program's. On one H200, programs of 4 to 4000 µs differed by at most 6 µs, noise included."""

GATE_DRIFT = 1e-5
"""By so many seconds calls behind gates may take longer than before the candidate was loaded, without its doing."""

TINY_SECONDS = 3e-6
"""What the shortest kernel takes by the events around it."""

MOST_SLOWED = 1.01
"""By so much the reference may be slower than before the candidate was loaded, as a GPU's clocks change."""

HOST_SECONDS = 3e-5
"""By so much a single call may take longer by the judge's clock for other reasons than the program's."""

_LAUNCH_SHARE = 0.95
_RESAMPLES, _SEED = 2000, 7
_LEAST_BLOCKS, _LEAST_ALONE = 4, 4


def supported_speedup(pairs: Sequence[BurstPair]) -> Estimate | None:
    """The ratio of both sides' seconds per call by such differences, with its bootstrap interval (percentiles). None
    without enough pairs of two lengths.

    Neighbours in `pairs` of which one is long and one is short form a block, so that load which lasts longer than a
    block drops out. Noise can hide the reference's calls, if they are short; they take no less than by their own clock,
    which can be believed. `high` is infinite if the candidate's calls cannot be told from none.
    """
    blocks = [
        sorted(block, key=lambda pair: len(pair[0].own))
        for block in zip(pairs[::2], pairs[1::2], strict=False)
        if len(block[0][0].own) != len(block[1][0].own)
    ]
    if len(blocks) < _LEAST_BLOCKS:
        return None
    seconds = np.array([[*_seconds_a_call(*block), block[1][0].typical] for block in blocks])
    random = np.random.default_rng(_SEED)
    drawn = np.median(seconds[random.integers(0, len(blocks), (_RESAMPLES, len(blocks)))], axis=1)
    ratios = _ratios(drawn)
    low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="nearest")
    value = _ratios(np.median(seconds, axis=0, keepdims=True))[0]
    return Estimate(float(value), float(low), float(high), len(blocks))


def _ratios(seconds: np.ndarray) -> np.ndarray:
    """Of rows of seconds per call: the reference's and the candidate's by differences, the reference's by its clock."""
    by_difference, candidate, by_own_clock = seconds.T
    reference = np.maximum(by_difference, by_own_clock)
    return np.divide(reference, candidate, out=np.full(len(seconds), math.inf), where=candidate > 0)


def _seconds_a_call(short: BurstPair, long: BurstPair) -> list[float]:
    """Seconds per call of both sides, by what the long burst took longer than the short one."""
    return [
        (longer.judged - shorter.judged) / (len(longer.own) - len(shorter.own))
        for shorter, longer in zip(short, long, strict=True)
    ]


@dataclass(frozen=True)
class Gates:
    """What is known of calls behind gates, in seconds.

    `candidate`: of calls of the candidate. `reference_before`: of calls of the reference before the candidate was
    loaded. `tiny`: of calls that ran the shortest kernel, at that time, behind the reference's gate and behind the
    candidate's. `tiny_now`: of such calls behind the reference's gate among the candidate's. `offsets`: how many more a
    call of the reference took in the candidate's process, by the runners' clocks. `by_own_clock`: of the reference's
    calls in bursts by its own clock, now and before.
    """

    candidate: Sequence[float]
    reference_before: Sequence[float]
    tiny: tuple[Sequence[float], Sequence[float]]
    tiny_now: Sequence[float]
    offsets: Sequence[float]
    by_own_clock: tuple[Sequence[float], Sequence[float]]


def supported_by_gates(gates: Gates) -> Estimate:
    """The speed-up that calls behind gates support: the reference's seconds by the candidate's seconds behind gates,
    less what any call takes there beside its kernels (some 0.4 ms).

    The shortest kernel shows that, behind the candidate's own gate, before the candidate is loaded. It may change a
    little with time. Such calls of the reference show it, but a program can make these slower, by work that it leaves
    on the GPU: no more than `GATE_DRIFT` is believed. Nor does it help a program to make its own calls vary.
    """
    candidate, offset = median_estimate(gates.candidate), median(gates.offsets)
    of_reference, of_candidate = (median_estimate(seconds) for seconds in gates.tiny)
    drift = max(0.0, min(median(gates.tiny_now) - of_reference.value, GATE_DRIFT))
    reference = _reference_seconds(gates, of_reference.value)
    slack = GATE_SECONDS + GATE_SHARE * reference
    beside = TINY_SECONDS - drift
    value = candidate.value - of_candidate.value + beside
    longest = candidate.high - of_candidate.low + beside + slack
    shortest = candidate.low - of_candidate.high + beside - slack
    middle, low, high = (_ratio(reference, seconds, offset) for seconds in (value, longest, shortest))
    return Estimate(middle, low, high, len(gates.candidate))


def is_launch_bound(by_own_clock: Sequence[float], behind_gate: Sequence[float], tiny: Sequence[float]) -> bool:
    """Whether the reference's calls take longer by its own clock than behind its gate, where launching takes no time.
    `tiny`: of the shortest kernel there. In seconds. False without any of these."""
    if not (by_own_clock and behind_gate and tiny):
        return False
    on_device = median(behind_gate) - median(tiny) + TINY_SECONDS
    return on_device + GATE_SECONDS < _LAUNCH_SHARE * median(by_own_clock)


def supported_by_single_calls(pairs: Sequence[BurstPair]) -> Estimate | None:
    """The speed-up of calls that were made alone on a GPU, by the judge's clock, less what the judge's clock sees
    beside the reference's call; None without enough of them.

    The reference's own clock can be believed. A program that does the work of several calls at once has only its own
    input here, and its launches are within the time.
    """
    if len(pairs) < _LEAST_ALONE:
        return None
    beside = median_estimate([reference.judged - reference.total for reference, _ in pairs])
    candidate = median_estimate([candidate.judged for _, candidate in pairs])
    seconds = median(reference.total for reference, _ in pairs)
    longest = candidate.high - beside.low + HOST_SECONDS
    shortest = candidate.low - beside.high - HOST_SECONDS
    middle, low, high = (_ratio(seconds, taken, 0.0) for taken in (candidate.value - beside.value, longest, shortest))
    return Estimate(middle, low, high, len(pairs))


def _reference_seconds(gates: Gates, tiny: float) -> float:
    """Seconds of a call of the reference: by its own clock, which can be believed, or behind its gate before the
    candidate was loaded, if it took longer there. Calls that wait for the GPU do, of both sides."""
    now, before = gates.by_own_clock
    by_own_clock = min(median(now), MOST_SLOWED * median(before)) if before else median(now)
    return max(by_own_clock, median(gates.reference_before) - tiny + TINY_SECONDS)


def _ratio(reference: float, candidate: float, offset: float) -> float:
    if candidate <= 0:
        return math.inf
    return reference / without_offset(candidate, reference, offset)


def supported_alone(ratios: Sequence[float]) -> Estimate | None:
    """The speed-up of calls that were made alone, one a pair, by the judge's clock; None without enough of them.

    A program that does the work of several calls at once can only do so where several are asked for at once.
    """
    return median_estimate(ratios) if len(ratios) >= _LEAST_ALONE else None


def bounded(speedup: Estimate, *supported: Estimate | None) -> Estimate:
    """The speed-up, if it is within all intervals of what is supported, or below. Else the lowest of what it exceeds;
    the interval then reaches as low as any."""
    exceeded = [bound for bound in supported if bound is not None and speedup.value > bound.high]
    if not exceeded:
        return speedup
    value, high = (min(ends) for ends in zip(*((bound.value, bound.high) for bound in exceeded), strict=True))
    low = min(speedup.low, *(bound.low for bound in exceeded))
    return replace(speedup, value=value, low=low, high=max(value, min(speedup.high, high)))
