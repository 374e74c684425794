"""Measures how the two processes of a judgement differ before the candidate is loaded: the reference runs in both.

Two processes run the same short kernel with a constant difference (`benchmarks.process_offsets`), which grows with the
number of kernels. A measurement of two programs, each in one process, cannot tell this difference from one between the
programs.
"""

from __future__ import annotations

import secrets
from typing import Any

from evaluators.host.device import Device
from evaluators.judge.pair import RunnerPair, reference_errors_as_infra
from evaluators.tasks import TaskProgram

_MOST_ROUNDS, _LEAST_ROUNDS, _WARM_UP_ROUNDS = 10, 4, 1
_SECONDS = 0.2  # of all calls; a longer reference gets fewer rounds


def calibrate(
    pair: RunnerPair, program: TaskProgram, init_inputs: list[Any], device: Device, timeout: float
) -> list[float]:
    """Seconds that a call of the reference takes longer in the candidate's process than in its own, one a round.

    It is [0.0] for a reference that takes so long that the difference does not matter. Inputs and outputs must be
    bound, and the reference loaded in its own process. Afterwards both processes hold a model that has to be replaced.
    Raises InfraError.
    """
    if not device.calibrated_seconds:
        return [0.0]
    with reference_errors_as_infra(program.task.id):
        return _calibrate(pair, program, init_inputs, device, timeout)


def _calibrate(
    pair: RunnerPair, program: TaskProgram, init_inputs: list[Any], device: Device, timeout: float
) -> list[float]:
    reference, candidate = pair.runners
    seed = secrets.randbits(48)
    reference.construct(seed, init_inputs, timeout, final=False)
    seconds = pair.reference_seconds(program.inputs(seed), seed, timeout)
    if seconds >= device.calibrated_seconds:
        return [0.0]
    candidate.load(program.source, "Model", timeout)
    candidate.construct(seed, init_inputs, timeout, final=False)
    calls, warm = device.calls(seconds, pair.most_calls)
    seeds = [secrets.randbits(48) for _ in range(calls)]
    values = [program.inputs(call_seed) for call_seed in seeds]
    affordable = round(_SECONDS / (2 * calls * max(seconds, 1e-6)))
    rounds, offsets = max(_LEAST_ROUNDS, min(_MOST_ROUNDS, affordable)), []
    for index in range(_WARM_UP_ROUNDS + rounds):
        done = pair.run_round(values, seeds, (timeout, timeout), candidate_first=index % 2 == 1, warm=warm)
        offsets.append(done.candidate.typical - done.reference.typical)
    return offsets[_WARM_UP_ROUNDS:]
