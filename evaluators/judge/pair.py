"""The two runners of a judgement, and one round of calls of both on the same fresh inputs.

Whichever side runs first, both get the same values at the same addresses. Outputs are poisoned before every call, and
no program may change an input.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evaluators.failures import InfraError, RunnerFailure
from evaluators.host.device import Device
from evaluators.host.outputs import TensorSets
from evaluators.host.runner_handle import RunnerHandle
from evaluators.judge.costs import Costs
from evaluators.records import Outcome
from evaluators.shared import nesting
from evaluators.shared.region import Region
from evaluators.timing.bursts import Burst

_REFERENCE, _CANDIDATE = 0, 1  # sides of a pair


@dataclass(frozen=True)
class Round:
    """One burst of each side on the same inputs, call by call under the same seeds."""

    reference: Burst
    candidate: Burst
    values: list[list[Any]]
    seeds: list[int]


class RunnerPair:
    """The reference's and the candidate's runner, with memory for inputs and outputs of one form bound on both.

    `has_gates`: whether the judge alone can time calls (`run_gated`). `most_calls`: for how many calls of a burst there
    is memory. `last_was_candidate`: whether the last burst was the candidate's. `unasked_seconds`: CPU seconds that the
    candidate's process took while only the reference had been asked for anything.
    """

    def __init__(self, device: Device, reference: RunnerHandle, candidate: RunnerHandle, task: str) -> None:
        self.device = device
        self.runners = (reference, candidate)
        self.task = task
        self.costs = Costs()
        self.spec: nesting.Spec = {}
        self.most_calls = 0
        self.last_was_candidate = False
        self.unasked_seconds = 0.0
        self.has_gates = False
        self._gated: dict[int, list[Tensor]] = {}  # outputs of the last calls, if these were behind gates
        self._master: TensorSets  # of the inputs, in memory that only the judge has
        self._inputs: TensorSets  # of the inputs, as both runners see them

    def bind(self, example: list[Any], spec: nesting.Spec, timeout: float, most: int | None = None) -> None:
        """Gives both runners memory for inputs like `example` and for outputs of the form `spec`.

        It is for `most` calls, or for as many as the device has room for. Inputs are the same memory for both sides:
        how fast a small kernel reads depends on the address of its input.
        """
        self.spec = spec
        inputs, outputs = nesting.tensor_specs(nesting.flatten(example)[0]), nesting.tensor_specs(spec)
        sizes = [nesting.layout(specs)[1] for specs in (inputs, outputs)]
        self.most_calls = min(self.device.max_calls(sum(sizes)), most or sum(sizes) + 1)
        with self._region(sizes[0] * self.most_calls) as region:
            for runner in self.runners:
                runner.bind_inputs(example, region, self.most_calls, timeout)
            self._inputs = TensorSets(inputs, region.memory, self.most_calls)
            self._master = TensorSets(inputs, torch.zeros_like(region.memory), self.most_calls)
        for runner in self.runners:
            runner.bind_outputs(spec, self.most_calls, timeout)

    def bind_gates(self, timeout: float) -> None:
        """Gives both runners gates, if the device has gates."""
        bound = [runner.bind_gate(nesting.tensor_specs(self.spec), timeout) for runner in self.runners]
        self.has_gates = all(bound)

    def adopt_strides(self, values: list[Any], seed: int, timeout: float) -> None:
        """Lets the candidate's outputs have strides of their own, which one call shows. Where outputs are copied, other
        strides would make that take longer than for the reference. Raises RunnerFailure."""
        candidate = self.runners[_CANDIDATE]
        candidate.bind_outputs(nesting.of_own_strides(self.spec), 1, timeout)
        self._write([values])
        self.device.synchronize()
        mismatch = candidate.call([seed], timeout)[1]
        spec = self.spec if mismatch is None else nesting.with_strides_of(self.spec, mismatch)
        candidate.bind_outputs(spec, self.most_calls, timeout)

    @contextmanager
    def _region(self, size: int) -> Iterator[Region]:
        """Shared memory of `size` bytes. Its descriptor is closed once the runners have it."""
        region = self.device.allocate(size)
        self.device.synchronize()
        try:
            yield region
        finally:
            region.close()

    def outputs(self, side: int, call: int = 0) -> list[Tensor]:
        """The outputs of one call of the reference (0) or the candidate (1), as they stand in memory now. They stand
        until that side's next request."""
        return self._gated[side] if self._gated else self.runners[side].outputs.of_call(call)

    def reference_seconds(self, values: list[Any], seed: int, timeout: float) -> float:
        """Seconds of the second call of the reference, since its first may compile. Raises InfraError."""
        self._write([values])
        self.device.synchronize()
        self._run_burst(_REFERENCE, [seed], timeout, 0)
        return self._run_burst(_REFERENCE, [seed], timeout, 0).own[0]

    def run_round(
        self,
        values: list[list[Any]],
        seeds: list[int],
        timeouts: tuple[float, float],
        *,
        candidate_first: bool = False,
        warm: int = 0,
        as_in_burst: bool = False,
    ) -> Round:
        """Runs one burst of each side, with one call for each entry of `values`.

        `timeouts`: seconds for the reference's burst and for the candidate's. `warm`: how many calls warm a burst up.
        `as_in_burst`: launches of a single call shall count as those of a longer burst do.
        Raises RunnerFailure if the candidate fails or changes its inputs, InfraError if the reference does.
        """
        self._gated = {}
        first = random.randrange(self.most_calls - len(values) + 1)  # no place tells what a call is made for
        with self.costs("fresh_inputs"):
            self._write(values, first)
            self.device.synchronize()
        with self.costs("poison"):
            for runner in self.runners:
                runner.outputs.poison(len(values))
            self.device.synchronize()
        bursts: dict[int, Burst] = {}
        for side in (_CANDIDATE, _REFERENCE) if candidate_first else (_REFERENCE, _CANDIDATE):
            with self.costs("calls"):
                bursts[side] = self._run_burst(side, seeds, timeouts[side], warm, first, as_in_burst=as_in_burst)
            self.costs.add("outside_calls", max(0.0, bursts[side].judged - bursts[side].total))
            with self.costs("inputs_unchanged"):
                if not torch.equal(
                    self._inputs.bytes_of(len(values), first), self._master.bytes_of(len(values), first)
                ):
                    self._raise_changed_inputs(side)
        return Round(bursts[_REFERENCE], bursts[_CANDIDATE], values, seeds)

    def run_gated(
        self,
        values: list[Any],
        seed: int,
        timeouts: tuple[float, float],
        *,
        traced: bool = False,
        alone: bool = False,
    ) -> Round:
        """One call of each side behind its gate, timed by the judge's events from before the inputs are there until the
        outputs are read. The candidate's call is the first: later it could have read the inputs elsewhere. The kernels
        of both are recorded if they are `traced`. `alone`: the reference's call stands for both.

        Raises RunnerFailure if the candidate fails or changes its inputs, InfraError if the reference does.
        """
        slot = random.randrange(self.most_calls)
        inputs, master = self._inputs.bytes_of(1, slot), self._master.bytes_of(1, slot)
        with self.costs("fresh_inputs"):
            self._write_master(slot, values)
            self.device.synchronize()
        self._gated, bursts = {}, {}
        for side in (_REFERENCE,) if alone else (_CANDIDATE, _REFERENCE):
            with self.costs("gated"):
                bursts[side], self._gated[side] = self._call_gated(side, slot, seed, timeouts[side], traced=traced)
            with self.costs("inputs_unchanged"):
                if not torch.equal(inputs, master):
                    self._raise_changed_inputs(side)
        return Round(bursts[_REFERENCE], bursts.get(_CANDIDATE, bursts[_REFERENCE]), [values], [seed])

    def run_tiny(self, timeout: float, *, by_candidate: bool = False) -> float:
        """Seconds of a call behind the reference's gate, or the candidate's, that runs the shortest kernel: what any
        call takes there beside its own. Raises RunnerFailure, or InfraError for the reference."""
        side = _CANDIDATE if by_candidate else _REFERENCE
        with self.costs("gated"):
            return self._call_gated(side, random.randrange(self.most_calls), 0, timeout, tiny=True)[0].judged

    @property
    def gate_bytes(self) -> int:
        """Device memory of both gates."""
        return sum(runner.gate_bytes for runner in self.runners)

    def _call_gated(
        self, side: int, slot: int, seed: int, timeout: float, *, traced: bool = False, tiny: bool = False
    ) -> tuple[Burst, list[Tensor]]:
        """One call behind a gate, and its outputs."""
        inputs = self._master.bytes_of(1, slot), self._inputs.bytes_of(1, slot)
        with reference_errors_as_infra(self.task) if side == _REFERENCE else nullcontext():
            called = self.runners[side].call_gated(slot, seed, inputs, timeout, traced=traced, tiny=tiny)
        seconds, outputs, mismatch = called
        self._refuse_mismatch(side, mismatch)
        return Burst(seconds, (seconds,)), outputs

    def _raise_changed_inputs(self, side: int) -> None:
        if side == _REFERENCE:
            raise InfraError(f"task {self.task}: the reference changes its inputs in place")
        raise RunnerFailure(Outcome.WRONG, "the program changes its inputs in place")

    def _run_burst(
        self, side: int, seeds: list[int], timeout: float, warm: int, first: int = 0, *, as_in_burst: bool = False
    ) -> Burst:
        runner = self.runners[side]
        self.last_was_candidate = side == _CANDIDATE
        if side == _REFERENCE:
            before = self.runners[_CANDIDATE].process.cpu_seconds()
            with reference_errors_as_infra(self.task):
                seconds, mismatch = runner.call(seeds, timeout, first, as_in_burst=as_in_burst)
            self.unasked_seconds += max(0.0, self.runners[_CANDIDATE].process.cpu_seconds() - before)
        else:
            seconds, mismatch = runner.call(seeds, timeout, first, as_in_burst=as_in_burst)
        self._refuse_mismatch(side, mismatch)
        return Burst(runner.seconds, tuple(seconds), warm, runner.waited)

    def _refuse_mismatch(self, side: int, mismatch: nesting.Spec | None) -> None:
        """Raises for an output of another form than the expected one."""
        if mismatch is None:
            return
        message = nesting.describe_mismatch(self.spec, mismatch)
        if side == _REFERENCE:
            raise InfraError(f"task {self.task}: the reference's output changes: {message}")
        raise RunnerFailure(Outcome.WRONG, message)

    def _write(self, values: Sequence[list[Any]], first: int = 0) -> None:
        """Puts fresh values at the addresses that the runners know."""
        for call, inputs in enumerate(values):
            self._write_master(first + call, inputs)
        self._inputs.bytes_of(len(values), first).copy_(self._master.bytes_of(len(values), first))

    def _write_master(self, call: int, inputs: list[Any]) -> None:
        """Puts fresh values where only the judge sees them."""
        _, tensors = nesting.flatten(inputs)
        for target, value in zip(self._master.views[call], tensors, strict=True):
            if target.shape != value.shape or target.dtype != value.dtype:
                raise InfraError(f"task {self.task}: get_inputs changes its shapes or dtypes")
            target.copy_(value)


@contextmanager
def reference_errors_as_infra(task: str) -> Iterator[None]:
    """Within this block, a failure of the reference is ours: it is no verdict on the candidate. Raises InfraError."""
    try:
        yield
    except RunnerFailure as failure:
        raise InfraError(f"task {task}: the reference failed: {failure.message}") from failure
