"""The programs that `benchmarks/evaluator.py` measures: kernels of known length, known slow-downs, faults."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.records import Task
from evaluators.tasks import find_task, program_source

_TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, *x):
        return {result}


def get_inputs():
    return {inputs}


def get_init_inputs():
    return []
"""
_CANDIDATE = """import ctypes, os, signal, time
import torch
import torch.nn as nn

NONCE = {nonce}
{top}


class ModelNew(nn.Module):
    def forward(self, *x):
        {statement}
        return {result}
"""


@dataclass(frozen=True)
class Kernel:
    """A program of one GPU kernel or of four. `about` is how long it takes on an H200; every `every`-th trial measures
    it."""

    name: str
    about: str
    result: str
    inputs: str
    every: int = 1

    @property
    def task(self) -> Task:
        return Task(f"kernel/{self.name}", 1, self.name, _TASK.format(result=self.result, inputs=self.inputs))

    def candidate(self, nonce: int, statement: str = "pass", result: str = "", top: str = "") -> str:
        """The same program as a candidate. Each `nonce` makes it another candidate, so that it is measured again."""
        return _CANDIDATE.format(nonce=nonce, statement=statement, result=result or self.result, top=top)


KERNELS = (
    Kernel("relu 4 KB", "4 us", "torch.relu(x[0])", "[torch.randn(1024)]"),
    Kernel("relu 1 MB", "4.5 us", "torch.relu(x[0])", "[torch.randn(1 << 18)]", every=4),
    Kernel("4 kernels", "16 us", "((x[0] + 1).exp() * 2).relu()", "[torch.randn(1 << 16)]", every=4),
    Kernel("matmul 64", "6 us", "x[0] @ x[1]", "[torch.randn(64, 64), torch.randn(64, 64)]"),
    Kernel("relu 16 MB", "13 us", "torch.relu(x[0])", "[torch.randn(1 << 22)]"),
    Kernel("relu 256 MB", "130 us", "torch.relu(x[0])", "[torch.randn(1 << 26)]"),
    Kernel("matmul 2900", "1 ms", "x[0] @ x[1]", "[torch.randn(2900, 2900), torch.randn(2900, 2900)]"),
)
_BUNDLED = (
    "level1/gelu_tanh",
    "level1/masked_cumsum",
    "level1/softmax",
    "level1/diagonal_matmul",
    "level2/highway_gate",
    "level3/residual_mlp",
)


@dataclass(frozen=True)
class BundledProgram:
    """A bundled task's own reference as a candidate, on a CPU."""

    name: str
    about: str = ""
    every: int = 1

    @property
    def task(self) -> Task:
        return find_task(self.name, "cpu")

    def candidate(self, nonce: int) -> str:
        """The reference's text with another class. Each `nonce` makes it another candidate."""
        return f"{program_source(self.task)}\n\nclass ModelNew(Model):\n    nonce = {nonce}\n"


BUNDLED = tuple(map(BundledProgram, _BUNDLED))
CYCLES = {"13 us": 18_000, "130 us": 250_000, "1 ms": 1_970_000}  # of a spinning kernel, beside a small one


def spinning(about: str) -> Kernel:
    """A program that takes a known number of clock cycles, so that another one is known to be 3 % slower."""
    result = f"(torch.cuda._sleep({CYCLES[about]}), torch.relu(x[0]))[1]"
    return Kernel(f"spin {about}", about, result, "[torch.randn(1024)]")


def slowed(kernel: Kernel, nonce: int, cycles: int) -> str:
    """The spinning program with `cycles` more."""
    before = CYCLES[kernel.about]
    return kernel.candidate(nonce, result=kernel.result.replace(str(before), str(before + cycles)))


_WRITES_OUTSIDE = """import triton
import triton.language as tl


@triton.jit
def write(target, offset):
    tl.store(target + offset, 1.0)
"""
# Lines at the top of the program, and a statement in its call. The signal of "kill -9" comes from outside.
FAULTS = {
    "illegal access": (_WRITES_OUTSIDE, "write[(1,)](x[0], 1 << 40)"),
    "out of memory": ("", "torch.empty(1 << 42, dtype=torch.uint8, device='cuda')"),
    "hang": ("", "torch.cuda._sleep(1 << 50)"),
    "kill -9": ("", "time.sleep(30)"),
}
