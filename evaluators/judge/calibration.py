"""Measures how the two processes of a judgement differ before the candidate is loaded: the reference runs in both.

Two processes run the same short kernel with a constant difference (`benchmarks.process_offsets`), which grows with the
number of kernels. A measurement of two programs, each in one process, cannot tell this difference from one between the
programs.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from evaluators.host.device import Device
from evaluators.judge.pair import RunnerPair, reference_errors_as_infra
from evaluators.tasks import TaskProgram

_GATED, _WARM_UP_GATED = 6, 2  # calls behind a gate
_GATED_SECONDS = 0.05  # of the reference's; long ones are fewer
_MOST_ROUNDS, _LEAST_ROUNDS, _WARM_UP_ROUNDS = 10, 4, 1
_SECONDS = 0.1  # of all calls; a longer reference gets fewer rounds


@dataclass(frozen=True)
class Calibration:
    """Seconds of the reference before the candidate was loaded.

    `offsets`: how many more a call takes in the candidate's process by the runners' clocks, one a round. `reference`:
    of a call in its own process, by that clock, one a round. `behind_gate`: of a call behind its own gate. `tiny`: of
    the shortest kernel, behind the reference's gate and behind the candidate's.
    """

    offsets: list[float]
    reference: list[float]
    behind_gate: list[float]
    tiny: tuple[list[float], list[float]]


_NOTHING = Calibration([0.0], [], [], ([], []))


def calibrate(
    pair: RunnerPair, program: TaskProgram, init_inputs: list[Any], device: Device, timeout: float
) -> Calibration:
    """Runs the reference in both processes, in turns. A reference that takes so long that the processes' difference
    does not matter runs in its own process alone, and only where there are gates.

    Inputs, outputs and gates must be bound, and the reference loaded in its own process. Afterwards both processes hold
    a model that has to be replaced. Raises InfraError.
    """
    if not device.calibrated_seconds:
        return _NOTHING
    with reference_errors_as_infra(program.task.id):
        return _Calibrating(pair, program, init_inputs, device, timeout).run()


class _Calibrating:
    def __init__(
        self, pair: RunnerPair, program: TaskProgram, init_inputs: list[Any], device: Device, timeout: float
    ) -> None:
        self._pair, self._program, self._device, self._timeout = pair, program, device, timeout
        self._init_inputs = init_inputs

    def run(self) -> Calibration:
        reference, candidate = self._pair.runners
        seed = secrets.randbits(48)
        reference.construct(seed, self._init_inputs, self._timeout, final=False)
        seconds = self._pair.reference_seconds(self._program.inputs(seed), seed, self._timeout)
        if seconds >= self._device.calibrated_seconds:
            return self._alone(seconds) if self._pair.has_gates else _NOTHING
        candidate.load(self._program.source, "Model", self._timeout)
        candidate.construct(seed, self._init_inputs, self._timeout, final=False)
        bursts = self._bursts(seconds)
        offsets, own_seconds = [theirs - own for own, theirs in bursts], [own for own, _ in bursts]
        return Calibration(offsets, own_seconds, self._gated(seconds), self._tiny())

    def _alone(self, expected: float) -> Calibration:
        seconds = []
        for _ in range(_LEAST_ROUNDS):
            call_seed = secrets.randbits(48)
            values = self._program.inputs(call_seed)
            seconds.append(self._pair.reference_seconds(values, call_seed, self._timeout))
        return Calibration([0.0], seconds, self._gated(expected), self._tiny())

    def _bursts(self, seconds: float) -> list[tuple[float, float]]:
        """Seconds of a call in both processes, a pair for each round."""
        calls, warm = self._device.calls(seconds, self._pair.most_calls)
        seeds = [secrets.randbits(48) for _ in range(calls)]
        values = [self._program.inputs(call_seed) for call_seed in seeds]
        affordable = round(_SECONDS / (2 * calls * max(seconds, 1e-6)))
        rounds, bursts = max(_LEAST_ROUNDS, min(_MOST_ROUNDS, affordable)), []
        for index in range(_WARM_UP_ROUNDS + rounds):
            timeouts = self._timeout, self._timeout
            done = self._pair.run_round(values, seeds, timeouts, candidate_first=index % 2 == 1, warm=warm)
            bursts.append((done.reference.typical, done.candidate.typical))
        return bursts[_WARM_UP_ROUNDS:]

    def _gated(self, seconds: float) -> list[float]:
        """Seconds of calls of the reference behind its gate; `seconds`: what one is expected to take."""
        if not self._pair.has_gates:
            return []
        count, gated = max(_LEAST_ROUNDS, min(_GATED, round(_GATED_SECONDS / (seconds + 1e-3)))), []
        for _ in range(_WARM_UP_GATED + count):
            values, timeouts = self._program.inputs(secrets.randbits(48)), (self._timeout, self._timeout)
            done = self._pair.run_gated(values, secrets.randbits(48), timeouts, alone=True)
            gated.append(done.reference.judged)
        return gated[_WARM_UP_GATED:]

    def _tiny(self) -> tuple[list[float], list[float]]:
        """Seconds of calls of the shortest kernel behind both gates, in turns."""
        count = _WARM_UP_GATED + _GATED if self._pair.has_gates else 0
        run = self._pair.run_tiny
        both = [(run(self._timeout), run(self._timeout, by_candidate=True)) for _ in range(count)][_WARM_UP_GATED:]
        return [reference for reference, _ in both], [candidate for _, candidate in both]
