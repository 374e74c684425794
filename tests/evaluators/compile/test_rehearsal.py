"""What a candidate would build in its first call is found out without its device."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.schema import LimitsConfig
from evaluators.compile.attempt import BuildAttempt
from evaluators.compile.builder import Builder
from evaluators.host.cpu_device import CpuDevice
from evaluators.records import Candidate, Task

TASK = Task(
    "test/affine",
    1,
    "affine",
    """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(20, 30)]


def get_init_inputs():
    return [30]
""",
)
START = """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline


def build(name):
    return load_inline(name=name, cpp_sources="int one() { return 1; }", functions=["one"])


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.extension = None
        self.total = float(self.linear.weight.sum()) + self.linear.bias.sum().item()
"""
IN_FORWARD = """
    def forward(self, x):
        return build(f"{x.device.type}_{x.is_cuda}_{self.linear(x).shape[1]}").one(x)
"""
FUNCTION = """
    def forward(self, x):
        return Function.apply(x, self.linear.weight)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        moved = torch.empty(3, device=x.device) + torch.zeros(3).to(x.device) + torch.ones(3, device="cuda:0").cuda()
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            stream = torch.cuda.current_stream().cuda_stream
        assert torch.arange(2).tolist() == [1, 1] and int(weight.sum().cpu().numpy()) == 1  # no value is known
        if not x.is_cpu and moved.is_cuda and weight.device == x.device:
            build("on_{}{}_{}".format(*torch.cuda.get_device_capability(), moved.to("cuda").numel()))
        return x
"""
GUARDED = """
    def forward(self, x):
        if x.numel() > 1000:
            self.extension = build("never")
        return x
"""


class Recorder(BuildAttempt):
    """An attempt that records what the candidate asks for, and builds nothing."""

    def __init__(self, builder: Builder, task: Task, candidate: Candidate) -> None:
        super().__init__(builder.place, task, candidate)
        self.asked: list[str] = []

    def answer(self, request, *, load=False):
        self.asked.append(request.name)
        return {}


@pytest.fixture(scope="module", params=["cpu", "H200"])
def builder(request, tmp_path_factory):
    arch, folder = request.param, Path(tmp_path_factory.mktemp("store"))
    made = Builder(CpuDevice() if arch == "cpu" else arch, folder, LimitsConfig())
    yield made
    made.close()


def asked(builder: Builder, forward: str, task: Task = TASK) -> list[str]:
    candidate = Candidate.propose(task.id, START + forward, "test")
    recorder = Recorder(builder, task, candidate)
    recorder.build(builder.artifact(task, candidate))
    return recorder.asked


@pytest.mark.slow
def test_an_extension_of_forward_is_found(builder) -> None:
    assert asked(builder, IN_FORWARD) == [{"cpu": "cpu_False_30", "H200": "cuda_True_30"}[builder.arch]]


def test_a_program_sees_a_gpu_that_is_not_there(builder) -> None:
    assert asked(builder, FUNCTION) == {"cpu": [], "H200": ["on_90_3"]}[builder.arch]


def test_a_branch_for_larger_inputs_than_the_tasks_is_not_entered(builder) -> None:
    assert asked(builder, GUARDED) == []


def test_a_task_whose_inputs_need_values_is_constructed_but_not_called(builder) -> None:
    """What the program builds while it is imported is still found."""
    inputs = "import numpy\n    return [torch.from_numpy(numpy.zeros((20, 30)))[torch.randn(20) > 0]]"
    source = TASK.source.replace("return [torch.randn(20, 30)]", inputs)
    forward = IN_FORWARD + "\n    build('imported')\n"
    assert asked(builder, forward, Task("test/numpy", 1, "numpy", source)) == ["imported"]
