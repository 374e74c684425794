"""The two runners of a judgement, and one round of calls of both on the same fresh inputs.

Whatever order they run in, they get the same values at the same addresses, outputs are poisoned before every call, and
nobody may have changed an input after it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evaluators.failures import InfraError, RunnerFailure
from evaluators.host.device import Device
from evaluators.host.runner_handle import RunnerHandle
from evaluators.records import Outcome
from evaluators.shared import nesting
from evaluators.shared.region import Region
from evaluators.timing.clocks import Burst


class Costs:
    """Seconds by what they were spent on; all that happens within a block is for what that block is for."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._within = False

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start, outermost, self._within = time.perf_counter(), not self._within, True
        try:
            yield
        finally:
            self._within = not outermost
            self.add(name, time.perf_counter() - start)

    def add(self, name: str, seconds: float) -> None:
        """Counts seconds, unless within a block."""
        if not self._within:
            self.seconds[name] += seconds


class Slots:
    """Equal sets of tensors in one region: `views[slot]` are the judge's views of one set."""

    def __init__(self, specs: list[nesting.Spec], memory: Tensor, count: int) -> None:
        size = nesting.layout(specs)[1]
        self.views = [nesting.views(specs, memory[slot * size : (slot + 1) * size]) for slot in range(count)]
        self._memory, self._size = memory, size

    def bytes_of(self, count: int) -> Tensor:
        """The memory of the first `count` sets, as 64-bit integers."""
        return self._memory[: count * self._size].view(torch.int64)


@dataclass(frozen=True)
class Round:
    """One burst of each side on the same inputs, each call under one of the seeds."""

    reference: Burst
    candidate: Burst
    values: list[list[Any]]
    seeds: list[int]


class RunnerPair:
    """Reference and candidate, with inputs and outputs of one form bound on both."""

    def __init__(self, device: Device, reference: RunnerHandle, candidate: RunnerHandle, task: str) -> None:
        self.device = device
        self.runners = (reference, candidate)
        self.task = task
        self.costs = Costs()
        self.spec: nesting.Spec = {}
        self.slots = 0
        self.beside = 0.0  # seconds of CPU time that the candidate took while only the reference was asked
        self._all_float = False
        self._master: Slots  # of the inputs, in memory that only the judge has
        self._inputs: Slots  # of the inputs, as both runners see them
        self._outputs: tuple[Slots, Slots]

    def bind(self, example: list[Any], spec: nesting.Spec, timeout: float, most: int | None = None) -> None:
        """Gives both runners inputs like `example` and outputs of the form `spec`, `most` sets of them or as many as
        the device has room for.

        Inputs are the same memory for both: how fast a small kernel reads depends on where its input lies.
        """
        self.spec = spec
        inputs, outputs = nesting.tensor_specs(nesting.flatten(example)[0]), nesting.tensor_specs(spec)
        sizes = [nesting.layout(one)[1] for one in (inputs, outputs)]
        self.slots = min(self.device.max_calls(sum(sizes)), most or sum(sizes) + 1)
        dtypes = [nesting.dtype_of(one) for one in outputs]
        self._all_float = all(one.is_floating_point or one.is_complex for one in dtypes)
        with self._region(sizes[0] * self.slots) as region:
            for runner in self.runners:
                runner.bind_inputs(example, region, self.slots, timeout)
            self._inputs = Slots(inputs, region.memory, self.slots)
            self._master = Slots(inputs, torch.zeros_like(region.memory), self.slots)
        bound = []
        for runner in self.runners:
            with self._region(sizes[1] * self.slots) as region:
                runner.bind_outputs(spec, region, self.slots, timeout)
                bound.append(Slots(outputs, region.memory, self.slots))
        self._outputs = (bound[0], bound[1])

    @contextmanager
    def _region(self, size: int) -> Iterator[Region]:
        """Shared memory; its descriptor is closed once the runners have it."""
        region = self.device.allocate(size)
        self.device.synchronize()
        try:
            yield region
        finally:
            region.close()

    def outputs(self, which: int, slot: int = 0) -> list[Tensor]:
        """What stands in a slot of the reference (0) or the candidate (1)."""
        return self._outputs[which].views[slot]

    def seconds_of_reference(self, values: list[Any], seed: int, timeout: float) -> float:
        """Seconds of a second call of the reference; the first may compile. Raises InfraError."""
        self._write([values])
        self.device.synchronize()
        self._burst(0, [seed], timeout, 0)
        return self._burst(0, [seed], timeout, 0).own[0]

    def round(
        self,
        values: list[list[Any]],
        seeds: list[int],
        timeouts: tuple[float, float],
        *,
        candidate_first: bool = False,
        warm: int = 0,
    ) -> Round:
        """One burst of both sides: a call per set of values. `timeouts`: seconds for the reference's burst and for the
        candidate's. Raises RunnerFailure for whatever the candidate does instead, InfraError for the reference."""
        with self.costs("fresh_inputs"):
            self._write(values)
            self.device.synchronize()
        with self.costs("poison"):
            for side in self._outputs:
                self._poison(side, len(values))
            self.device.synchronize()
        bursts: dict[int, Burst] = {}
        for which in (1, 0) if candidate_first else (0, 1):
            with self.costs("calls"):
                bursts[which] = self._burst(which, seeds, timeouts[which], warm)
            self.costs.add("outside_calls", max(0.0, bursts[which].judged - bursts[which].total))
            with self.costs("inputs_unchanged"):
                if not torch.equal(self._inputs.bytes_of(len(values)), self._master.bytes_of(len(values))):
                    self._changed(which)
        return Round(bursts[0], bursts[1], values, seeds)

    def _changed(self, which: int) -> None:
        if which == 0:
            raise InfraError(f"task {self.task}: the reference changes its inputs in place")
        raise RunnerFailure(Outcome.WRONG, "the program changes its inputs in place")

    def _burst(self, which: int, seeds: list[int], timeout: float, warm: int) -> Burst:
        runner = self.runners[which]
        if which == 0:
            before = self.runners[1].process.cpu_seconds()
            seconds, mismatch = of_reference(self.task, lambda: runner.call(seeds, timeout))
            self.beside += max(0.0, self.runners[1].process.cpu_seconds() - before)
        else:
            seconds, mismatch = runner.call(seeds, timeout)
        if mismatch is not None:
            message = nesting.describe_mismatch(self.spec, mismatch)
            if which == 0:
                raise InfraError(f"task {self.task}: the reference's output changes: {message}")
            raise RunnerFailure(Outcome.WRONG, message)
        return Burst(runner.seconds, tuple(seconds), warm, runner.waited)

    def _write(self, values: Sequence[list[Any]]) -> None:
        """Puts fresh values at the same addresses."""
        for slot, one in enumerate(values):
            _, tensors = nesting.flatten(one)
            for target, value in zip(self._master.views[slot], tensors, strict=True):
                if target.shape != value.shape or target.dtype != value.dtype:
                    raise InfraError(f"task {self.task}: get_inputs changes its shapes or dtypes")
                target.copy_(value)
        self._inputs.bytes_of(len(values)).copy_(self._master.bytes_of(len(values)))

    def _poison(self, side: Slots, count: int) -> None:
        """Fills output buffers with values that no program computes by accident."""
        if self._all_float:
            side.bytes_of(count).fill_(-1)  # every bit set is NaN in every floating-point format
            return
        for views in side.views[:count]:
            for output in views:
                _poison(output)


def of_reference(task: str, work: Any) -> Any:
    """The reference is ours: when it fails, that is no verdict on the candidate."""
    try:
        return work()
    except RunnerFailure as failure:
        raise InfraError(f"task {task}: the reference failed: {failure.message}") from failure


def _poison(tensor: Tensor) -> None:
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype is torch.bool:
        tensor.copy_(torch.rand(tensor.shape, device=tensor.device) < 0.5)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min + 7)
