"""A first look at a candidate: whether it runs at all, in a process of its own, before any measurement is prepared.

Most that a policy writes at first does not run. A pair of processes on a GPU is started and calibrated before the
candidate is loaded, which takes longer than all else there is about such a program; a look takes one process. Nothing
is timed in it, so looks may go on side by side where nobody measures, and fill the caches of compilers as they do.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from evaluators.failures import RunnerFailure
from evaluators.host.device import Device
from evaluators.host.runner_handle import RunnerHandle
from evaluators.records import Outcome
from evaluators.shared import nesting
from evaluators.shared.nesting import describe_mismatch
from evaluators.shared.region import Region
from evaluators.tasks import ProgramError, TaskProgram

_PAYS = 0.3  # of a look's seconds to those that it spares: it pays where it ends so many programs
_MEMORY = 0.95  # of the running share, a program
_DOES_NOT_RUN = (Outcome.RUNTIME_ERROR, Outcome.BUILD_ERROR, Outcome.TIMEOUT)
_OTHER_SECONDS = 20.0  # at most, at another shape
_LEAST_SECONDS = 0.1
_CROWDED = re.compile(  # what may be for want of memory, of processes, files or time: the libraries' words for it, too
    r"memory|alloc|not.initialized|internal.error|execution.failed|unable.to.find|resource|unavailable|new thread"
    r"|no space|too many|launch.failure|signal 9\b",
    re.IGNORECASE,
)


class Looks:
    """Whether looks pay, as far as the last dozens of programs tell."""

    def __init__(self) -> None:
        self._ended = 1.0  # the share of programs that a look ends, or would have

    @property
    def pay(self) -> bool:
        return self._ended > _PAYS

    def looked(self, ended: bool) -> None:
        """Whether a look ended the judgement."""
        self._ended = _MEMORY * self._ended + (1 - _MEMORY) * ended

    def left_out(self, outcome: Outcome) -> None:
        """The outcome of a program that could have been looked at: one that fails is taken to fail at once."""
        self.looked(outcome in _DOES_NOT_RUN)


def look(
    runner: RunnerHandle,
    program: TaskProgram,
    source: str,
    device: Device,
    timeout: float,
    also: Sequence[dict[str, int]] = (),
    *,
    within: float = math.inf,
) -> None:
    """Starts the runner, loads the candidate, constructs it and calls it once on the task's inputs; what the output
    holds is not looked at, only its form. `timeout`: seconds for each of these, `within`: for all of this. Then it is
    called at other sizes of the task, `also`, whatever comes of that: what compiles for them has done so when they are
    tried.

    Raises RunnerFailure, as a judgement of the candidate would; InfraError and Unbuilt, as the runner does.
    """
    end = time.monotonic() + within

    def left() -> float:
        return max(min(timeout, end - time.monotonic()), _LEAST_SECONDS)

    runner.begin_start()
    runner.end_start(left())
    seed = secrets.randbits(48)
    init_inputs = program.init_inputs(seed)
    runner.load(source, "ModelNew", left())
    runner.construct(seed, init_inputs, left())
    _call(runner, program, init_inputs, device, left())
    for sizes in also:
        with suppress(ProgramError, RunnerFailure):
            other = TaskProgram(program.task.with_sizes(**sizes), device.torch_device)
            _call(runner, other, init_inputs, device, min(left(), _OTHER_SECONDS))


def _call(runner: RunnerHandle, program: TaskProgram, init_inputs: list[Any], device: Device, timeout: float) -> None:
    """One call on inputs of a task, whose output has the form of the reference's."""
    seed = secrets.randbits(48)
    inputs = program.inputs(secrets.randbits(48))
    expected = program.output_spec(seed, init_inputs, inputs)
    spec, tensors = nesting.flatten(inputs)
    given, taken = (_region(device, nesting.tensor_specs(one)) for one in (spec, expected))
    try:
        for target, value in zip(nesting.views(nesting.tensor_specs(spec), given.memory), tensors, strict=True):
            target.copy_(value)
        device.synchronize()
        runner.bind_inputs(inputs, given, 1, timeout)
        runner.bind_outputs(expected, taken, 1, timeout)
        mismatch = runner.call([seed], timeout)[1]
    finally:
        given.close()
        taken.close()
    if mismatch is not None:
        raise RunnerFailure(Outcome.WRONG, describe_mismatch(expected, mismatch))


def is_certain(failure: RunnerFailure) -> bool:
    """Whether a program would fail like this on a device of its own, too: not for want of time or memory, of which
    there is less beside others."""
    return failure.outcome is not Outcome.TIMEOUT and not _CROWDED.search(failure.message)


def _region(device: Device, specs: list[nesting.Spec]) -> Region:
    return device.allocate(nesting.layout(specs)[1])
