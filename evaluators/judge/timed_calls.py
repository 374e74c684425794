"""The stage of a judgement that measures: rounds of timed calls on both sides, until the preset's criteria are met.

Every call gets inputs that nobody has seen before, and every output is compared with the reference's.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from evaluators.guard.bursts import takes_longer_alone
from evaluators.host.device import Device
from evaluators.judge.calibration import Calibration
from evaluators.judge.checks import Checks
from evaluators.judge.expectation import Errors, Expectation
from evaluators.judge.pair import Round, RunnerPair
from evaluators.judge.trials import Trials
from evaluators.judge.unusual_trials import Calling
from evaluators.judge.weights import Weights
from evaluators.records import ClockSample, Estimate, Finding, Timing
from evaluators.shared.kernel_record import MARKS, KernelRecord
from evaluators.tasks import TaskProgram
from evaluators.timing.bursts import BurstPair
from evaluators.timing.clocks import Hidden, slowed_by, slowed_since, waited_more
from evaluators.timing.estimates import calibrated_estimate, median_estimate
from evaluators.timing.paper import paper_estimate
from evaluators.timing.presets import Preset
from evaluators.timing.supported import (
    Gates,
    bounded,
    is_launch_bound,
    supported_by_gates,
    supported_by_single_calls,
)

_CALLS_ALONE, _SINGLE_CALLS = 11, 10
_MOST_GATED, _LEAST_GATED, _GATED_A_BLOCK = 8, 6, 2  # calls of each side
_GATED_SECONDS = 0.1  # of all calls; long ones are fewer
_EXCEEDS = 1.05  # times the speed-up of single calls: more of these are made
_CANDIDATE_FIRST = 0.75  # probability
_UNUSUAL = 0.5  # probability of a call on unusual inputs after a block
_OTHER_WEIGHTS = 0.5  # probability, before a block of two rounds
_MUCH_SLOWER = 10.0  # times the reference: a slower program gets shorter bursts, as its exact speed does not matter


@dataclass(frozen=True)
class Measurement:
    """What the timed calls showed.

    `hidden`: time of the candidate that only the judge's clock saw. `waited`: how much more the reference waited for a
    core (`evaluators.timing.clocks.waited_more`). `slowed`: how many times as long the reference takes right after the
    candidate as right after itself, or as before the candidate was loaded, whichever is surely more; None if neither
    was seen often enough. `together`, `alone`: seconds of a call of
    the reference and of the candidate in bursts and of a single call, whose `low` is the shortest; `alone` is None if
    bursts are of one call anyway. `discard`: why the paper's protocol discards the result, if it does.
    """

    speedup: Estimate
    timing: Timing
    hidden: Hidden
    waited: Estimate
    slowed: Estimate | None
    together: tuple[Estimate, Estimate]
    alone: tuple[Estimate, Estimate] | None
    discard: Finding | None


@dataclass
class _Samples:
    """The bursts of all rounds that count, single calls beside them, and the GPU's state after each round.

    `again`: a burst of the reference right after one of the candidate's, and the next one, right after the reference's
    own. `gated`: calls behind gates. `single`: calls alone on a GPU, where launches take longer than kernels. `tiny`:
    seconds of the shortest kernel behind the reference's gate.
    """

    pairs: list[BurstPair] = field(default_factory=list)
    again: list[BurstPair] = field(default_factory=list)
    alone: list[BurstPair] = field(default_factory=list)
    gated: list[BurstPair] = field(default_factory=list)
    single: list[BurstPair] = field(default_factory=list)
    tiny: list[float] = field(default_factory=list)
    clocks: list[ClockSample] = field(default_factory=list)
    stopped_by: str = ""


class TimedCalls:
    """Times one pair of runners after their outputs have passed the trials."""

    def __init__(
        self,
        program: TaskProgram,
        pair: RunnerPair,
        device: Device,
        weights: Weights,
        checks: Checks,
        trials: Trials,
        preset: Preset,
    ) -> None:
        self._program, self._pair, self._device = program, pair, device
        self._weights, self._checks, self._trials, self._preset = weights, checks, trials, preset
        self._errors: Errors = []
        self._offset, self._is_launch_bound = 0.0, False

    def run(self, calibration: Calibration) -> Measurement:
        """Times both sides. Raises RunnerFailure for a wrong output or a program that fails, InfraError for the
        reference."""
        self._offset = median(calibration.offsets)
        self._is_launch_bound = is_launch_bound(calibration.reference, calibration.behind_gate, calibration.tiny[0])
        if self._weights.are_new:  # results prepared from the weights of the trials are wrong now
            self._checks.expectation = Expectation(self._program, self._weights.draw())
        # A timed output is compared with the reference's at the task's dtype: both carry rounding errors.
        self._errors = [(2 * rms, 2 * largest) for rms, largest in self._trials.own_errors]
        with self._pair.costs("warm_up"):
            self._device.warm_up()
        samples = self._sample()
        alone = self._estimate_alone(samples) if samples.alone else None
        return self._measurement(samples, alone, calibration)

    def _sample(self) -> _Samples:
        """Rounds of bursts, until a criterion of the preset stops them.

        Two rounds form a block: the side that begins is drawn at random, and the other one begins the second round. The
        candidate begins more often, since only then does the reference follow itself.
        """
        samples, reason = _Samples(), None
        unusual = self._trials.unusual.kinds(self._preset.distributions) if self._preset.distributions else []
        shortest = self._trials.candidate_seconds
        start, warmup = time.perf_counter(), self._preset.warmup
        while reason is None:
            # By the shortest calls so far: nobody gets shorter bursts, or fewer, by idling at times.
            seconds = max(self._trials.reference_seconds, shortest / _MUCH_SLOWER)
            calls, warm = self._device.calls(seconds, self._pair.most_calls)
            if random.random() < _OTHER_WEIGHTS and (state := self._weights.change_rows()):
                self._checks.expectation.change(state)
            candidate_first = random.random() < _CANDIDATE_FIRST
            block = [
                self._round(length, warm, candidate_first=candidate_first is is_first)
                for length, is_first in zip(self._lengths(calls), (True, False), strict=True)
            ]
            last = block[-1].candidate
            shortest = min(shortest, min(last.judged, last.total) / len(last.own))
            with self._pair.costs("clock_log"):
                sample = self._device.clock_sample()
            if warmup > 0:
                warmup -= len(block)
                start = time.perf_counter()
                continue
            samples.clocks += [sample] if sample else []
            samples.pairs += [(done.reference, done.candidate) for done in block]
            if candidate_first:
                samples.again.append((block[0].reference, block[1].reference))
            # Single calls are made between the bursts, so that other load disturbs both alike.
            if unusual and random.random() < _UNUSUAL:
                self._try_unusual(unusual.pop())
            if self._pair.has_gates:
                self._time_gated(samples, _GATED_A_BLOCK)
                self._time_single(samples, len(block))
            elif calls > 1 and len(samples.alone) < _CALLS_ALONE:
                samples.alone += [self._time_alone() for _ in block]
            ratios = self._device.clock.ratios(samples.pairs, self._offset)
            reason = self._preset.reason_to_stop(ratios, time.perf_counter() - start)
        for kind in unusual:
            self._try_unusual(kind)
        if self._pair.has_gates:
            self._time_gated(samples, _MOST_GATED)
            self._time_single(samples, _SINGLE_CALLS)
        samples.stopped_by = reason
        return samples

    def _lengths(self, calls: int) -> list[int]:
        """The lengths of a block's bursts, in calls. They differ if what a burst costs once is a share of it that
        matters (`evaluators.timing.supported`). The reference's seconds decide: the candidate's are its own to
        choose."""
        if (
            self._device.clock.needs_two_lengths(calls * self._trials.reference_seconds)
            and 2 * calls <= self._pair.most_calls
        ):
            return random.sample([calls, 2 * calls], 2)
        return [calls, calls]

    def _round(self, calls: int, warm: int = 0, *, candidate_first: bool = False, as_in_burst: bool = False) -> Round:
        """One burst of each side on fresh inputs, every output compared."""
        with self._pair.costs("draw_inputs"):
            values = [self._trials.inputs.draw() for _ in range(calls)]
        seeds = [secrets.randbits(48) for _ in range(calls)]
        timeouts = self._trials.timeouts(calls)
        done = self._pair.run_round(
            values, seeds, timeouts, candidate_first=candidate_first, warm=warm, as_in_burst=as_in_burst
        )
        self._checks.check_round(done, self._errors)
        return done

    def _time_alone(self) -> BurstPair:
        """One single call of each side, for the guard to compare with the calls of a burst.

        Each comes right after a call of its own side, as all but the first of a burst do: it finds the memory that it
        works in, and its code, in the caches. What it cannot have is the inputs of later calls."""
        with self._pair.costs("alone"):
            follows = self._pair.last_was_candidate
            first = self._round(1, candidate_first=follows)
            second = self._round(1, candidate_first=not follows)
        reference, candidate = (second, first) if follows else (first, second)
        return reference.reference, candidate.candidate

    def _time_gated(self, samples: _Samples, most: int) -> None:
        """At most so many calls of both sides behind gates, on fresh inputs, every output compared; as many as are
        still missing. The shortest kernel runs among them."""
        seconds = self._trials.reference_seconds + min(self._trials.candidate_seconds, self._trials.reference_seconds)
        wanted = max(_LEAST_GATED, min(_MOST_GATED, round(_GATED_SECONDS / (seconds + 1e-3))))
        for _ in range(min(most, wanted - len(samples.gated))):
            with self._pair.costs("draw_inputs"):
                values = self._trials.inputs.draw()
            both = self._pair.run_gated(values, secrets.randbits(48), self._trials.timeouts(1))
            self._checks.check_round(both, self._errors)
            samples.gated.append((both.reference, both.candidate))
            samples.tiny.append(self._pair.run_tiny(self._trials.timeouts(1)[0]))

    def _time_single(self, samples: _Samples, most: int) -> None:
        """At most so many single calls of each side, as many as are still missing, if the reference's launches take
        longer than its kernels: calls behind gates do not show launches."""
        missing = _SINGLE_CALLS - len(samples.single) if self._is_launch_bound else 0
        for _ in range(min(most, missing)):
            with self._pair.costs("alone"):
                done = self._round(1, candidate_first=random.random() < 0.5, as_in_burst=True)
            samples.single.append((done.reference, done.candidate))

    def _try_unusual(self, kind: Callable[[Calling], None]) -> None:
        """An untimed call of each side on inputs of that kind. It looks like those that bound what bursts are paid: one
        alone, or one behind a gate."""

        def call(values: list[Any], seed: int) -> None:
            timeouts = self._trials.timeouts(1)
            if self._pair.has_gates:
                self._pair.run_gated(values, seed, timeouts)
            else:
                self._pair.run_round([values], [seed], timeouts)

        with self._pair.costs("distributions"):
            kind(call)

    def trace(self, timeout: float) -> tuple[list[KernelRecord] | None, bool]:
        """The kernels of one more call of the candidate behind its gate, on fresh inputs, whose output is compared like
        every other, None without a tracer or gates; and whether the reference's process can record its own in a call
        that fills an output. Raises RunnerFailure."""
        if not self._pair.has_gates:
            return None, False
        values = self._trials.inputs.draw()
        both = self._pair.run_gated(values, secrets.randbits(48), self._trials.timeouts(1), traced=True)
        own, theirs = (runner.trace(timeout) for runner in self._pair.runners)
        self._checks.check_round(both, self._errors)
        return theirs, any(name not in MARKS for name, *_ in own or ())

    def _estimate_alone(self, samples: _Samples) -> tuple[Estimate, Estimate]:
        """Seconds of a single call on both sides. If the candidate's seem long, or gain less than bursts do, there are
        more of them.

        Other load on the machine delays some calls, but not the shortest of many.
        """
        together = self._shortest_and_median(samples.pairs)
        alone = self._shortest_and_median(samples.alone)
        if self._exceeds_alone(samples) or takes_longer_alone(together, alone, self._device.clock.alone_seconds):
            samples.alone += [self._time_alone() for _ in range(2 * _CALLS_ALONE)]
            alone = self._shortest_and_median(samples.alone)
        return alone

    def _exceeds_alone(self, samples: _Samples) -> bool:
        """Whether the speed-up of bursts is above that of single calls, by the judge's clock."""
        clock = self._device.clock
        if not clock.supported(samples.pairs, samples.alone):
            return False
        together, alone = (median(clock.ratios(pairs)) for pairs in (samples.pairs, samples.alone))
        return together > _EXCEEDS * alone

    def _shortest_and_median(self, pairs: list[BurstPair]) -> tuple[Estimate, Estimate]:
        sides = self._device.clock.seconds(pairs, self._offset)
        reference, candidate = (replace(median_estimate(side), low=min(side)) for side in sides)
        return reference, candidate

    def _measurement(
        self, samples: _Samples, alone: tuple[Estimate, Estimate] | None, calibration: Calibration
    ) -> Measurement:
        clock, pairs, discard = self._device.clock, samples.pairs, None
        reference, candidate = clock.seconds(pairs, self._offset)
        hidden = clock.hidden(pairs)
        timing = Timing(
            candidate_seconds=median_estimate(candidate),
            reference_seconds=median_estimate(reference),
            pairs=len(pairs),
            stopped_by=samples.stopped_by,
            clock_disagreement=hidden.share.value,
            clocks=tuple(samples.clocks),
        )
        if self._preset.paper:
            speedup, discard = paper_estimate(clock.ratios(pairs, self._offset))
        else:
            speedup = calibrated_estimate([clock.ratios(pairs, offset) for offset in calibration.offsets])
        supported = clock.supported(pairs, samples.alone)
        if samples.gated:
            supported += [
                supported_by_gates(_gates(samples, calibration)),
                supported_by_single_calls(samples.single),
            ]
        speedup = bounded(speedup, *supported)
        return Measurement(
            speedup,
            timing,
            hidden,
            waited_more(pairs),
            _worse(slowed_by(samples.again, by_host=clock.is_of_host), slowed_since(calibration.reference, pairs)),
            self._shortest_and_median(pairs),
            alone,
            discard,
        )


def _worse(*slowed: Estimate | None) -> Estimate | None:
    return max((one for one in slowed if one is not None), key=lambda one: one.low, default=None)


def _gates(samples: _Samples, calibration: Calibration) -> Gates:
    return Gates(
        candidate=[candidate.judged for _, candidate in samples.gated],
        reference_before=calibration.behind_gate,
        tiny=calibration.tiny,
        tiny_now=samples.tiny,
        offsets=calibration.offsets,
        by_own_clock=([reference.typical for reference, _ in samples.pairs], calibration.reference),
    )
