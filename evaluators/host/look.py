"""A first look at a candidate: whether it runs at all, in a process of its own, before any measurement is prepared.

Runs in the judge's process (trusted). It must never time anything, nor judge the values of an output
(`evaluators.judge.plain_values` does, on a CPU). Most programs that an untrained policy writes do not run. On a GPU a
pair of processes is started and calibrated before the candidate is loaded, which takes longer than all the rest for
such a program; a look takes one process. Since a look times nothing, several may run side by side while nobody
measures. They fill the compilers' caches meanwhile.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from torch import Tensor

from evaluators.failures import RunnerFailure
from evaluators.host.device import Device
from evaluators.host.runner_handle import RunnerHandle
from evaluators.records import Outcome
from evaluators.shared import nesting
from evaluators.shared.nesting import describe_mismatch
from evaluators.tasks import ProgramError, TaskProgram

_PAYS = 0.3  # a look takes this share of the seconds that it saves, so it pays if it ends more programs than that
_MEMORY = 0.95  # the weight that the running share keeps with each new program
_DOES_NOT_RUN = (Outcome.RUNTIME_ERROR, Outcome.BUILD_ERROR, Outcome.TIMEOUT)
_OTHER_SECONDS = 20.0  # at most, for the call at another shape
_LEAST_SECONDS = 0.1
_CROWDED = re.compile(  # messages of a program that may lack memory, processes, files or time; libraries' words, too
    r"memory|alloc|not.initialized|internal.error|execution.failed|unable.to.find|resource|unavailable|new thread"
    r"|no space|too many|launch.failure|signal 9\b",
    re.IGNORECASE,
)


class Looks:
    """Tracks whether looking first saves time, over the last few dozen programs."""

    def __init__(self) -> None:
        self._ended = 1.0  # the share of programs that a look ended, or would have ended

    @property
    def pay(self) -> bool:
        """Whether a look saves time, on average."""
        return self._ended > _PAYS

    def record(self, ended: bool) -> None:
        """Records whether a look ended the judgement of a program."""
        self._ended = _MEMORY * self._ended + (1 - _MEMORY) * ended

    def record_skipped(self, outcome: Outcome) -> None:
        """Records the outcome of a program that was judged without a look. If it does not run, a look is taken to have
        ended it."""
        self.record(outcome in _DOES_NOT_RUN)


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
    """Starts the runner, loads the candidate, constructs it and calls it once on the task's inputs. Only the form of
    the output is checked, not its values.

    `timeout`: seconds for each of these steps; `within`: seconds for all of them. `also`: other sizes of the task, at
    which the candidate is called afterwards; failures there are ignored. A program that compiles for each shape has
    then done so when the judge tries them.

    Raises RunnerFailure if the candidate does not run, as a judgement of it would; InfraError and Unbuilt, as the
    runner does.
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
            _call(runner, program.resized(**sizes), init_inputs, device, min(left(), _OTHER_SECONDS))


def _call(runner: RunnerHandle, program: TaskProgram, init_inputs: list[Any], device: Device, timeout: float) -> None:
    """Calls the candidate once on inputs of the task. Raises RunnerFailure if it fails, or if its output does not have
    the form of the reference's."""
    seed = secrets.randbits(48)
    inputs = program.inputs(secrets.randbits(48))
    call_once(runner, inputs, program.output_spec(seed, init_inputs, inputs), device, seed, timeout)


def call_once(
    runner: RunnerHandle, inputs: list[Any], expected: nesting.Spec, device: Device, seed: int, timeout: float
) -> None:
    """Calls the constructed model on a copy of `inputs`, which are on the device. Raises RunnerFailure if it fails, or
    if its output has another form than `expected`."""
    mismatch = _call_on_copy(runner, inputs, expected, device, seed, timeout)
    if mismatch is not None:
        raise RunnerFailure(Outcome.WRONG, describe_mismatch(expected, mismatch))


def outputs_of(
    runner: RunnerHandle, inputs: list[Any], expected: nesting.Spec, device: Device, seed: int, timeout: float
) -> list[Tensor]:
    """The tensors that the constructed model returns on a copy of `inputs`, whatever their strides. Of a model that
    keeps a state they may be those of a second call. Raises RunnerFailure as `call_once` does."""
    any_strides = nesting.of_any_strides(expected)
    spec = nesting.of_own_strides(expected)
    mismatch = _call_on_copy(runner, inputs, spec, device, seed, timeout)
    if mismatch is not None:  # the judge reads outputs where they lie, so it has to know how
        spec = nesting.of_own_strides(nesting.with_strides_of(any_strides, mismatch))
        call_once(runner, inputs, spec, device, seed, timeout)
    return [output.clone() for output in runner.outputs.of_call(0)]


def _call_on_copy(
    runner: RunnerHandle, inputs: list[Any], expected: nesting.Spec, device: Device, seed: int, timeout: float
) -> nesting.Spec | None:
    """Calls the model, and returns the form of an output of another form than `expected`. Raises RunnerFailure."""
    spec, tensors = nesting.flatten(inputs)
    given = device.allocate(nesting.layout(nesting.tensor_specs(spec))[1])
    try:
        for target, value in zip(nesting.views(nesting.tensor_specs(spec), given.memory), tensors, strict=True):
            target.copy_(value)
        device.synchronize()
        runner.bind_inputs(inputs, given, 1, timeout)
        runner.bind_outputs(expected, 1, timeout)
        return runner.call([seed], timeout)[1]
    finally:
        given.close()


def is_certain(failure: RunnerFailure) -> bool:
    """Whether a program would fail in this way on a device of its own, too. A lack of time or memory is not certain:
    beside other programs there is less of both."""
    return failure.outcome is not Outcome.TIMEOUT and not _CROWDED.search(failure.message)
