"""The first stage of a judgement: both processes start, both programs are loaded, both models are constructed.

Whatever the judge learns without the candidate it learns before the candidate is loaded, so that no candidate can
disturb it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.failures import InfraError, RunnerFailure
from evaluators.host.device import Device
from evaluators.host.runner_handle import RunnerHandle
from evaluators.judge.calibration import Calibration, calibrate
from evaluators.judge.checks import Checks
from evaluators.judge.expectation import Expectation
from evaluators.judge.pair import RunnerPair, reference_errors_as_infra
from evaluators.judge.weights import Flags, Weights
from evaluators.records import Finding, Outcome
from evaluators.shared import nesting
from evaluators.tasks import TaskProgram


@dataclass(frozen=True)
class Loaded:
    """What loading leaves for the later stages.

    `init_inputs`: the arguments of both constructors. `calibration`: how the two processes differ.
    """

    init_inputs: list[Any]
    calibration: Calibration
    findings: list[Finding]


class GateTooSmall(Exception):
    """The outputs of this task have no room in the gate that the reference's process has from an earlier judgement: it
    needs another process. Nothing of the candidate has been loaded."""


class MemoryLimit:
    """Ends a judgement in which the runners take much more device memory than they may.

    A runner can take memory past the limit of its allocator. The device's own count of the memory in use shows it.
    """

    def __init__(self, device: Device, limit_bytes: int) -> None:
        """`limit_bytes`: what one runner may take; 0 for no limit."""
        self._device, self._limit_bytes = device, limit_bytes
        self._bytes_before = 0

    def begin(self) -> None:
        """Notes the memory in use before the runners start."""
        self._bytes_before = self._device.memory_in_use()

    def check(self, lent_bytes: int) -> None:
        """Raises RunnerFailure if the runners take more than twice the limit of one, beside what they were lent."""
        used = self._device.memory_in_use() - self._bytes_before - lent_bytes
        if self._limit_bytes and used > 2 * self._limit_bytes:
            message = f"uses {used / 2**30:.1f} GiB of device memory, at most {self._limit_bytes / 2**30:.1f}"
            raise RunnerFailure(Outcome.RUNTIME_ERROR, f"the program {message} allowed")


class Loading:
    """Loads one pair of programs. Its limit, in seconds, holds for each step of a runner."""

    def __init__(
        self,
        program: TaskProgram,
        device: Device,
        pair: RunnerPair,
        weights: Weights,
        checks: Checks,
        memory: MemoryLimit,
        timeout: float,
    ) -> None:
        self._program, self._device, self._pair = program, device, pair
        self._weights, self._checks, self._memory, self._timeout = weights, checks, memory, timeout

    def run(self, source: str) -> Loaded:
        """Loads both programs, the candidate last, and constructs both models. Raises RunnerFailure, InfraError and
        GateTooSmall."""
        reference, candidate = self._pair.runners
        self._memory.begin()
        self._begin_start()
        seed = secrets.randbits(48)
        init_inputs = self._program.init_inputs(seed)
        with reference_errors_as_infra(self._program.task.id):  # no program of a candidate is there yet
            example, spec = self._forms(seed, init_inputs)
            if not reference.has_room(nesting.tensor_specs(spec)):
                raise GateTooSmall
            self._end_start(reference)
            with self._pair.costs("load_reference"):
                reference.load(self._program.source, "Model", self._timeout)
            self._end_start(candidate)
            self._bind(example, spec)
        with self._pair.costs("calibrate"):
            self._device.warm_up()
            calibration = calibrate(self._pair, self._program, init_inputs, self._device, self._timeout)
        with self._pair.costs("load_candidate"):
            candidate.load(source, "ModelNew", self._timeout)
        self._checks.expectation = Expectation(self._program, self._weights.construct(init_inputs))
        findings = flag_findings(self._weights.flags)
        self._memory.check(self._pair.gate_bytes)
        return Loaded(init_inputs, calibration, findings)

    def _begin_start(self) -> None:
        """Lets both runners take hold of the device at the same time, unless they have been started ahead. That takes
        some tenths of a second on a GPU, in which the judge, and the one that is there first, do what they can."""
        with self._pair.costs("start"):
            for runner in self._pair.runners:
                if not runner.has_started:
                    runner.begin_start(loads_libraries=True)

    def _end_start(self, runner: RunnerHandle) -> None:
        with self._pair.costs("start"):
            if not runner.has_started:
                runner.end_start(self._timeout)

    def _forms(self, seed: int, init_inputs: list[Any]) -> tuple[list[Any], nesting.Spec]:
        """Inputs of one call, and the form of its output."""
        example = self._program.inputs(secrets.randbits(48))
        # The form of the output comes from a model of the judge's own. The reference runner's model may keep a state
        # (an RNN's hidden one), which must have seen exactly the calls that the candidate's has seen.
        spec = self._program.output_spec(seed, init_inputs, example)
        if not nesting.tensor_specs(spec):
            raise InfraError(f"task {self._program.task.id}: its output holds no tensor")
        return example, spec

    def _bind(self, example: list[Any], spec: nesting.Spec) -> None:
        """Gives both runners the memory of their inputs and outputs."""
        with self._pair.costs("bind"):
            self._pair.bind(example, spec, self._timeout)
        with self._pair.costs("bind_gates"):
            self._pair.bind_gates(self._timeout)


def flag_findings(flags: Sequence[tuple[Flags, Flags]]) -> list[Finding]:
    """A hint if the candidate's constructor left global numeric flags otherwise than the reference's; at most one.

    `flags`: those of the reference and of the candidate after each construction.
    """
    for reference, candidate in flags:
        changed = [f"{name} = {candidate.get(name)}" for name in reference if reference[name] != candidate.get(name)]
        if changed:
            message = f"the program set {', '.join(changed)}; both sides run under the same flags, so it was set back"
            return [Finding("flags", "hint", message)]
    return []
