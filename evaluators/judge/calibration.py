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

_GATED_PAIRS, _WARM_UP_PAIRS = 16, 3
_MOST_ROUNDS, _LEAST_ROUNDS, _WARM_UP_ROUNDS = 10, 4, 1
_SECONDS = 0.2  # of all calls; a longer reference gets fewer rounds


@dataclass(frozen=True)
class Calibration:
    """How the reference's seconds differ between the two processes.

    `offsets`: how many more a call takes in the candidate's process by the runners' clocks, one a round. `gates`: how
    many more behind the candidate's gate, one a pair of calls. `reference`: seconds of the reference in its own
    process, one a round.
    """

    offsets: list[float]
    gates: list[float]
    reference: list[float]


UNCALIBRATED = Calibration([0.0], [0.0], [])


def calibrate(
    pair: RunnerPair, program: TaskProgram, init_inputs: list[Any], device: Device, timeout: float
) -> Calibration:
    """Runs the reference in both processes, one after the other.

    It is UNCALIBRATED for a reference that takes so long that the difference does not matter. Inputs, outputs and gates
    must be bound, and the reference loaded in its own process. Afterwards both processes hold a model that has to be
    replaced. Raises InfraError.
    """
    if not device.calibrated_seconds:
        return UNCALIBRATED
    with reference_errors_as_infra(program.task.id):
        return _calibrate(pair, program, init_inputs, device, timeout)


def _calibrate(
    pair: RunnerPair, program: TaskProgram, init_inputs: list[Any], device: Device, timeout: float
) -> Calibration:
    reference, candidate = pair.runners
    seed = secrets.randbits(48)
    reference.construct(seed, init_inputs, timeout, final=False)
    seconds = pair.reference_seconds(program.inputs(seed), seed, timeout)
    if seconds >= device.calibrated_seconds:
        return UNCALIBRATED
    candidate.load(program.source, "Model", timeout)
    candidate.construct(seed, init_inputs, timeout, final=False)
    calls, warm = device.calls(seconds, pair.most_calls)
    seeds = [secrets.randbits(48) for _ in range(calls)]
    values = [program.inputs(call_seed) for call_seed in seeds]
    affordable = round(_SECONDS / (2 * calls * max(seconds, 1e-6)))
    rounds, bursts = max(_LEAST_ROUNDS, min(_MOST_ROUNDS, affordable)), []
    for index in range(_WARM_UP_ROUNDS + rounds):
        done = pair.run_round(values, seeds, (timeout, timeout), candidate_first=index % 2 == 1, warm=warm)
        bursts.append((done.reference.typical, done.candidate.typical))
    gated = [
        pair.run_gated(program.inputs(secrets.randbits(48)), secrets.randbits(48), (timeout, timeout))
        for _ in range(_WARM_UP_PAIRS + _GATED_PAIRS if pair.has_gates else 0)
    ]
    return Calibration(
        [theirs - own for own, theirs in bursts[_WARM_UP_ROUNDS:]],
        [done.candidate.judged - done.reference.judged for done in gated[_WARM_UP_PAIRS:]] or [0.0],
        [own for own, _ in bursts[_WARM_UP_ROUNDS:]],
    )
