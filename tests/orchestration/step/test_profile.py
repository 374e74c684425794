"""What a prompt says of a program's measurements is what the verdict has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluators.records import Estimate, KernelUse, Outcome, Task, Timing, Trace, Verdict
from evaluators.tasks import find_task
from orchestration.step.profile import Profiler, traffic_of

ADD = """
import torch
rows = 1024
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(width))
    def forward(self, x):
        return x + self.weight
def get_inputs():
    return [torch.rand(rows, 256)]
def get_init_inputs():
    return [256]
"""
TASK = Task("level1/1", 1, "add", ADD)
BYTES = 4 * (2 * 1024 * 256 + 256)


def exactly(seconds: float) -> Estimate:
    return Estimate(seconds, seconds, seconds, 9)


def verdict(taken: float, trace: Trace | None = None) -> Verdict:
    timing = Timing(exactly(taken), exactly(4e-5), 9, "interval", 0.0)
    return Verdict("d", TASK.id, "H200", Outcome.OK, timing=timing, trace=trace)


def test_traffic_is_that_of_inputs_parameters_and_outputs() -> None:
    assert traffic_of(TASK) == BYTES
    assert traffic_of(TASK.with_sizes(rows=2)) == 4 * (2 * 2 * 256 + 256)
    assert traffic_of(find_task("level1/softmax", "cpu"))


def test_a_task_that_needs_values_has_no_traffic() -> None:
    source = ADD.replace("return x + self.weight", "return x[: int(x.sum())]")
    assert traffic_of(replace(TASK, source=source)) is None


def test_bandwidth_is_compared_with_that_of_a_known_device() -> None:
    call, bandwidth = Profiler("H200").lines(TASK, verdict(2e-5))
    assert call == "A call takes 20 µs, the reference's 40 µs."
    assert f"{BYTES / 2e-5 / 1e9:.3g} GB/s, {BYTES / 2e-5 / 4.8e12:.0%} of the device's 4800 GB/s" in bandwidth
    assert "device's" not in " ".join(Profiler("cpu").lines(TASK, verdict(2e-5)))


def test_kernels_stand_longest_first_and_gaps_are_told_if_there_are_any() -> None:
    kernels = (KernelUse("short", False, 7, 3, 2e-6), KernelUse("long\x1b[31m" + "x" * 99, True, 7, 1, 8e-6))
    lines = Profiler("H200").lines(TASK, verdict(2e-5, Trace(kernels, 1e-5, 0.8, 1)))
    assert "4 kernel launches in a call" in lines[2]
    assert lines[2].index("long") < lines[2].index("short (3 times) 2 µs")
    assert "\x1b" not in lines[2]
    assert "x" * 61 not in lines[2]
    assert lines[3].startswith("For 10 µs of a call (50%) no kernel runs")
    assert len(Profiler("H200").lines(TASK, verdict(1e-5, Trace(kernels, 1e-5, 0.8, 1)))) == 3


@pytest.mark.parametrize("arch", ["cpu", "H200"])
def test_a_program_that_was_not_timed_has_no_profile(arch: str) -> None:
    assert Profiler(arch).lines(TASK, replace(verdict(1.0), timing=None)) == []
