"""What differs between the two processes of a judgement before the candidate is there: the reference runs in both."""

from __future__ import annotations

import secrets
from typing import Any

from evaluators.host.device import Device
from evaluators.judge.pair import RunnerPair, of_reference
from evaluators.tasks import TaskProgram

_MOST_ROUNDS, _LEAST_ROUNDS, _WARM_UP_ROUNDS = 10, 4, 1
_SECONDS = 0.2  # of calls, for references that are not that short


def calibrate(
    pair: RunnerPair, program: TaskProgram, init_inputs: list[Any], device: Device, timeout: float
) -> list[float]:
    """Seconds that a call of the reference takes longer in the candidate's process than in its own, as some rounds of
    both show; 0 for a reference that is too long for that to matter. Inputs and outputs must be bound, and the
    reference loaded on its own side; afterwards either process has a model that is to be replaced. Raises InfraError.

    Two processes run the same short kernel with a constant difference (`benchmarks.process_offsets`), and more of it
    the more kernels there are, which no measurement of two programs, one in each, can tell from one of the programs.
    """
    if not device.calibrated_seconds:
        return [0.0]
    found: list[float] = of_reference(program.task.id, lambda: _calibrate(pair, program, init_inputs, device, timeout))
    return found


def _calibrate(
    pair: RunnerPair, program: TaskProgram, init_inputs: list[Any], device: Device, timeout: float
) -> list[float]:
    ours, theirs = pair.runners
    seed = secrets.randbits(48)
    ours.construct(seed, init_inputs, timeout, final=False)
    seconds = pair.seconds_of_reference(program.inputs(seed), seed, timeout)
    if seconds >= device.calibrated_seconds:
        return [0.0]
    theirs.load(program.source, "Model", timeout)
    theirs.construct(seed, init_inputs, timeout, final=False)
    calls, warm = device.calls(seconds, pair.slots)
    seeds = [secrets.randbits(48) for _ in range(calls)]
    values = [program.inputs(one) for one in seeds]
    affordable = round(_SECONDS / (2 * calls * max(seconds, 1e-6)))
    rounds, offsets = max(_LEAST_ROUNDS, min(_MOST_ROUNDS, affordable)), []
    for index in range(_WARM_UP_ROUNDS + rounds):
        done = pair.round(values, seeds, (timeout, timeout), candidate_first=index % 2 == 1, warm=warm)
        offsets.append(done.candidate.typical - done.reference.typical)
    return offsets[_WARM_UP_ROUNDS:]
