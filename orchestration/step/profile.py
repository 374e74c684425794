"""What was measured of a program, as lines for a prompt: its time, the bandwidth that it reached, its kernels and the
gaps between them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from configs.gpus import GPUS
from evaluators.records import Task, Timing, Trace, Verdict
from evaluators.shared import nesting
from evaluators.tasks import ProgramError, TaskProgram

_KERNELS = 5
_NAME_CHARACTERS = 60
_LEAST_GAP = 0.05  # share of a call; less is noise between two clocks


class Profiler:
    """Profiles of programs on an architecture."""

    def __init__(self, arch: str) -> None:
        self._bandwidth = 1e12 * GPUS[arch].terabytes_a_second if arch in GPUS else 0.0
        self._traffic: dict[str, int | None] = {}

    def lines(self, task: Task, verdict: Verdict) -> list[str]:
        """What was measured, a sentence each; empty if the program was not timed."""
        if verdict.timing is None:
            return []
        if task.id not in self._traffic:
            self._traffic[task.id] = traffic_of(task)
        timing, traffic = verdict.timing, self._traffic[task.id]
        taken = timing.candidate_seconds.value
        lines = [f"A call takes {_time(taken)}, the reference's {_time(timing.reference_seconds.value)}."]
        if traffic:
            lines.append(self._describe_bandwidth(traffic, taken))
        if verdict.trace is not None:
            lines += _describe_trace(verdict.trace, timing)
        return lines

    def _describe_bandwidth(self, traffic: int, seconds: float) -> str:
        reached = traffic / seconds
        line = (
            f"Inputs, parameters and outputs have {traffic / 2**20:.3g} MiB: to move them once in that time is "
            f"{reached / 1e9:.3g} GB/s"
        )
        if not self._bandwidth:
            return f"{line}."
        return f"{line}, {reached / self._bandwidth:.0%} of the device's {self._bandwidth / 1e9:.4g} GB/s."


def traffic_of(task: Task) -> int | None:
    """Bytes of a task's inputs, parameters and outputs together, by one call of the reference on torch's `meta` device;
    None if it does not run without values."""
    try:
        program = TaskProgram(task, torch.device("meta"))
        init_inputs = program.init_inputs(0)
        inputs = program.inputs(0)
        model = program.model(0, init_inputs)
        with torch.no_grad():
            outputs = model(*inputs)
    except (ProgramError, RuntimeError, NotImplementedError, ValueError, TypeError):
        return None
    tensors = [*nesting.flatten(inputs)[1], *nesting.flatten(outputs)[1], *model.parameters(), *model.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _describe_trace(trace: Trace, timing: Timing) -> Iterator[str]:
    """The kernels of a call, the longest first, and how long the GPU had nothing to do."""
    total = sum(kernel.seconds for kernel in trace.kernels)
    named = [
        f"{_one_line(kernel.name)}{f' ({kernel.calls} times)' if kernel.calls > 1 else ''} {_time(kernel.seconds)}"
        for kernel in sorted(trace.kernels, key=lambda kernel: -kernel.seconds)[:_KERNELS]
    ]
    if total:
        launches = sum(kernel.calls for kernel in trace.kernels)
        yield f"{launches} kernel launches in a call. The longest kernels: {'; '.join(named)}."
    taken = timing.candidate_seconds.value
    gaps = taken - trace.gpu_seconds
    if gaps > _LEAST_GAP * taken:
        share = f"{_time(gaps)} of a call ({gaps / taken:.0%})"
        yield f"For {share} no kernel runs: these are gaps between launches, or work of the host."


def _one_line(name: str) -> str:
    """A kernel's name, which its author chose, as a few plain characters."""
    plain = "".join(character if character.isprintable() else " " for character in name)
    plain = " ".join(plain.split())
    return plain if len(plain) <= _NAME_CHARACTERS else f"{plain[:_NAME_CHARACTERS]}..."


def _time(seconds: float) -> str:
    for unit, factor in [("s", 1.0), ("ms", 1e3)]:
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
