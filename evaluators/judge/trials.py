"""The calls that are checked and not timed. They come before every timed call.

They are on the task's own inputs, then on unusual ones (`evaluators.judge.unusual_trials`).
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from evaluators.guard.floor import LEAST_SECONDS
from evaluators.host.device import Device
from evaluators.judge.checks import Checks, same_bits
from evaluators.judge.expectation import Errors
from evaluators.judge.floor import bytes_written
from evaluators.judge.inputs import CallInputs
from evaluators.judge.pair import Round, RunnerPair
from evaluators.judge.unusual_trials import UnusualTrials
from evaluators.judge.weights import Weights
from evaluators.tasks import TaskProgram
from evaluators.timing.presets import Preset

_AFTER_NEW_WEIGHTS = " (after its weights were changed, as by load_state_dict)"

CALL_FACTOR = 1000.0
"""A call may take this many times as long as the reference's (CUDA-L1 section 2.1)."""


@dataclass(frozen=True)
class CallLimits:
    """Seconds that the steps of one runner may take: `start` for loading and constructing, `call` for one call or
    `CALL_FACTOR` times the reference's, whichever is less."""

    start: float
    call: float


class Trials:
    """The trials of one candidate on the task's own inputs, and then on unusual ones. Later stages use their results.

    `inputs`: those of the next calls. `unusual`: the trials on unusual inputs. `own_errors`: the reference's, on the
    task's own inputs. `deterministic`: whether the candidate gives the same bits twice; None if the reference does not,
    or if nothing was tried. `written_bytes`: those that a call must write to its output. `reference_seconds`,
    `candidate_seconds`: of the shortest call, since the first may compile, and since one side can make a call of the
    other longer.
    """

    def __init__(
        self,
        program: TaskProgram,
        pair: RunnerPair,
        device: Device,
        weights: Weights,
        checks: Checks,
        preset: Preset,
        limits: CallLimits,
    ) -> None:
        self.own_errors: Errors = []
        self.deterministic: bool | None = None
        self.written_bytes = 0
        self.reference_seconds, self.candidate_seconds = limits.start, math.inf
        self._pair, self._device = pair, device
        self._weights, self._checks, self._preset, self._limits = weights, checks, preset, limits
        self.inputs = CallInputs(program)
        self.unusual = UnusualTrials(program, self.inputs, pair, device, weights, checks)
        self._first_outputs: list[Tensor] | None = None  # until `written_bytes` is known; empty afterwards

    def timeouts(self, calls: int) -> tuple[float, float]:
        """Seconds that a burst of `calls` may take: the reference's and the candidate's."""
        one = 1.0 + calls * min(self._limits.call, max(CALL_FACTOR * self.reference_seconds, 1.0))
        return one + self._limits.call, one

    def run(self) -> None:
        """Compares outputs with a float64 reference: on fresh inputs, on the first of them twice, then on unusual ones.

        The first call may compile, so it may take as long as a start. Raises RunnerFailure for a wrong output.
        """
        start, call = self._limits.start, self._limits.call
        for trial in range(self._preset.trials):
            self._try_own_inputs((start + call, start) if trial == 0 else self.timeouts(1))
        if self._preset.distributions:
            with self._pair.costs("distributions"):
                self.unusual.run(self.own_errors, self.timeouts(1))

    def _try_own_inputs(self, timeouts: tuple[float, float]) -> None:
        """One call of each side, from which the reference's own errors are learned, too."""
        values, seed = self.inputs.draw(), secrets.randbits(48)
        self._record_seconds(self._pair.run_round([values], [seed], timeouts))
        expected, own, _ = self._checks.expect(values, seed)
        is_first = self._weights.are_new and not self._checks.comparisons
        self._checks.check_values(expected, own, _AFTER_NEW_WEIGHTS if is_first else "", (values, seed))
        before = self.own_errors or own
        self.own_errors = [(max(a[0], b[0]), max(a[1], b[1])) for a, b in zip(own, before, strict=True)]
        self._measure_output(values)
        if self.deterministic is None:
            self._repeat(values, seed, timeouts)

    def _record_seconds(self, done: Round) -> None:
        """Remembers how long a call takes. The candidate's own clock is believed, but not beyond the judge's."""
        self.reference_seconds = min(self.reference_seconds, done.reference.own[0])
        self.candidate_seconds = min(self.candidate_seconds, done.candidate.own[0], done.candidate.judged)

    def _measure_output(self, values: list[Any]) -> None:
        """Measures how much of the output changes from the first inputs to the second, if it is large enough for the
        guard to tell from that how long a call must take."""
        outputs = self._pair.outputs(0)
        largest = max(output.numel() * output.dtype.itemsize for output in outputs)
        if self._device.floor_seconds(largest) < LEAST_SECONDS:
            return
        with self._pair.costs("floor"):
            if self._first_outputs is None:
                self._first_outputs = [output.clone() for output in outputs]
            elif self._first_outputs:
                self.written_bytes = bytes_written(self._first_outputs, outputs, values)
                self._first_outputs = []

    def _repeat(self, values: list[Any], seed: int, timeouts: tuple[float, float]) -> None:
        """Makes the same call again. Whether the candidate's bits are the same counts unless the reference's differ,
        which keeps a state then."""
        with self._pair.costs("determinism"):
            before = [[output.clone() for output in self._pair.outputs(side)] for side in (0, 1)]
            self._record_seconds(self._pair.run_round([values], [seed], timeouts))
            reference, candidate = (
                all(map(same_bits, outputs, self._pair.outputs(side))) for side, outputs in enumerate(before)
            )
            self.deterministic = candidate if reference else None
            if reference and not candidate:
                where = " from one call to the next on the same inputs"
                self._checks.check_values(before[1], self.own_errors, where)
