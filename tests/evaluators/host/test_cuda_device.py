"""Behaviour that only a GPU can show: streams, caches, kernels of a candidate, faults of the device, two clocks."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from configs.gpus import GPUS
from configs.schema import LimitsConfig
from evaluators.evaluator import Evaluator
from evaluators.records import Outcome, Task
from evaluators.stored.baselines import existing_baselines
from tests.folders import open_folder

pytestmark = pytest.mark.cuda

TASK = Task(
    "test/scaled_relu",
    1,
    "scaled_relu",
    """
import torch
import torch.nn as nn

rows, columns = 512, 1024


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight) * 2


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
""",
)
ELEMENTWISE = Task(
    "test/scaled",
    1,
    "scaled",
    """
import torch
import torch.nn as nn

count = 1 << 20


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1


def get_inputs():
    return [torch.randn(count)]


def get_init_inputs():
    return []
""",
)


@pytest.fixture(scope="module")
def gpu() -> Iterator[Evaluator]:
    limits = LimitsConfig(start_seconds=20.0, call_seconds=2.0, gpu_memory_gib=4.0)
    with open_folder() as store, Evaluator(arch="auto", limits=limits, store=store) as made:
        made.start()
        yield made


def program(top: str = "", init: str = "", forward: str = "", result: str = "torch.relu(x @ self.weight) * 2") -> str:
    lines = ["import ctypes, os, signal, threading, time", "import torch", "import torch.nn as nn", top]
    lines += ["class ModelNew(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [
        "        self.weight = nn.Parameter(torch.randn(1024, 1024))",
        *(f"        {one}" for one in init.splitlines()),
    ]
    lines += [
        "    def forward(self, x):",
        *(f"        {one}" for one in forward.splitlines()),
        f"        return {result}",
    ]
    return "\n".join(lines) + "\n"


EXTENSION = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
__global__ void scaled_relu(const float* x, float* y, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.f) * 2.f + 1.f;
}
torch::Tensor apply(torch::Tensor x) {
    auto y = torch::empty_like(x);
    long n = x.numel();
    auto stream = c10::cuda::getCurrentCUDAStream();
    scaled_relu<<<(n + 255) / 256, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
module = load_inline("scaled_relu", "torch::Tensor apply(torch::Tensor x);", cuda, functions=["apply"], verbose=False)


class ModelNew(nn.Module):
    def forward(self, x):
        return module.apply(x)
'''
TRITON = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_relu(source, target, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    value = tl.load(source + offsets, mask=inside)
    tl.store(target + offsets, tl.maximum(value, 0.0) * 2 + 1, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scaled_relu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""


@pytest.mark.parametrize("source", [EXTENSION, TRITON], ids=["extension", "triton"])
def test_a_candidates_kernel_is_built_measured_and_told_from_torchs(gpu, source) -> None:
    verdict = gpu.evaluate(ELEMENTWISE, source)
    assert verdict.outcome is Outcome.OK, verdict.message or verdict.guard
    assert verdict.speedup > 1.3  # one pass over memory instead of three
    assert verdict.correctness.deterministic
    if verdict.trace is None:
        pytest.skip("no CUPTI here")
    assert verdict.trace.own_kernel_share == 1.0, verdict.trace
    assert verdict.trace.kernels[0].calls == 1


def test_torchs_kernels_are_not_the_candidates(gpu) -> None:
    verdict = gpu.evaluate(TASK, program(result="torch.relu(x @ self.weight) + torch.relu(x @ self.weight)"))
    assert verdict.outcome is Outcome.OK, verdict.message or verdict.guard
    assert verdict.speedup < 0.95
    if verdict.trace is None:
        pytest.skip("no CUPTI here")
    assert verdict.trace.own_kernel_share == 0.0
    assert len(verdict.trace.kernels) >= 3
    assert verdict.trace.streams == 1


def test_every_baseline_is_measured(gpu) -> None:
    with Evaluator(arch="auto", baselines=existing_baselines(gpu.device.arch), store=gpu.store) as made:
        verdict = made.evaluate(ELEMENTWISE, TRITON)
    assert verdict.outcome is Outcome.OK, verdict.message or verdict.guard
    assert set(verdict.speedups) == {"eager", "torch_compile", "torch_compile_reduce_overhead", "cuda_graph", "cudnn"}
    assert verdict.speedups["torch_compile"].value < verdict.speedup  # torch.compile fuses the operators, too
    assert 0.8 < verdict.speedup / verdict.speedups["cudnn"].value < 1.25  # cuDNN flags change nothing here


def test_the_gpu_is_as_prompts_describe_it(gpu) -> None:
    from evaluators.host.nvml import Nvml  # not on every machine

    told = GPUS.get(gpu.device.arch)
    if told is None or not told.multiprocessors:
        pytest.skip(f"nothing is told of {gpu.device.arch}")
    properties = torch.cuda.get_device_properties(0)
    assert (told.capability, told.multiprocessors) == (gpu.device.capability, properties.multi_processor_count)
    assert told.l2_mib == pytest.approx(properties.L2_cache_size / 2**20, rel=0.25)
    assert told.shared_kib == properties.shared_memory_per_multiprocessor // 1024
    assert told.terabytes_a_second == pytest.approx(Nvml(gpu.device.uuid).highest_bytes_a_second() / 1e12, rel=0.1)


def test_the_state_of_the_gpu_stands_beside_the_figures(gpu) -> None:
    verdict = gpu.evaluate(TASK, program())
    assert verdict.outcome is Outcome.OK, verdict.message or verdict.guard
    assert 0.9 < verdict.speedup < 1.1
    assert 2 * len(verdict.timing.clocks) == verdict.timing.pairs  # they are read once for two pairs
    assert min(sample.sm_mhz for sample in verdict.timing.clocks) > 500
    assert verdict.arch == gpu.device.arch != "cpu"
    assert verdict.evaluator["driver"]


CHEATS = {
    "on another stream, unfinished": program(
        init="self.side = torch.cuda.Stream()",
        forward="y = torch.empty_like(x)\n"
        "with torch.cuda.stream(self.side):\n    y.copy_(torch.relu(x @ self.weight) * 2)",
        result="y",
    ),
    "on another stream, begun too early": program(
        init="self.side = torch.cuda.Stream()",
        forward="with torch.cuda.stream(self.side):\n    y = torch.relu(x @ self.weight) * 2\n"
        "torch.cuda.current_stream().wait_stream(self.side)",
        result="y",
    ),
    "by the address of the input": program(
        top="cache = {}",
        forward="if x.data_ptr() not in cache: cache[x.data_ptr()] = torch.relu(x @ self.weight) * 2",
        result="cache[x.data_ptr()]",
    ),
    "memory that the last call left": program(result="torch.empty(512, 1024, device='cuda')"),
    "on the CPU": program(result="(torch.relu(x @ self.weight) * 2).cpu()"),
    "in half precision": program(result="(torch.relu(x.half() @ self.weight.half()) * 2).float()"),
    "in tf32": program(
        forward="torch.backends.cuda.matmul.allow_tf32 = True",
    ),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_gains_nothing(gpu, name) -> None:
    verdict = gpu.evaluate(TASK, CHEATS[name])
    if name.startswith("on another stream"):  # right, since the device is waited for; the events miss the work
        assert verdict.outcome in (Outcome.SUSPECT, Outcome.WRONG), verdict
        assert verdict.outcome is Outcome.WRONG or "hidden_work" in [finding.kind for finding in verdict.guard]
    else:
        assert verdict.outcome is Outcome.WRONG, verdict.message
    assert not verdict.speedups


def test_several_streams_that_are_joined_are_fine(gpu) -> None:
    source = program(
        init="self.side = torch.cuda.Stream()",
        forward="main = torch.cuda.current_stream()\nself.side.wait_stream(main)\n"
        "with torch.cuda.stream(self.side):\n    y = torch.relu(x @ self.weight)\n"
        "z = torch.relu(x @ self.weight)\nmain.wait_stream(self.side)",
        result="y + z",
    )
    verdict = gpu.evaluate(TASK, source)
    assert verdict.outcome is Outcome.OK, (verdict.message, verdict.guard)
    if verdict.trace is None:
        pytest.skip("no CUPTI here")
    assert verdict.trace.streams == 2
    assert verdict.trace.outside_seconds == 0.0


@pytest.mark.parametrize(
    "top",
    [
        "torch.cuda.synchronize = torch.cuda.Event.synchronize = torch.cuda.Event.record = lambda *a, **k: None",
        "torch.cuda.Event.elapsed_time = lambda *a: 1e-3",
        "import evaluators.runner.cuda as m\nm.CudaRunner.finish = lambda self: None",
    ],
    ids=["synchronize", "elapsed_time", "finish"],
)
def test_a_patched_clock_gains_nothing(gpu, top) -> None:
    verdict = gpu.evaluate(TASK, program(top=top))
    assert verdict.outcome in (Outcome.HACK, Outcome.WRONG, Outcome.RUNTIME_ERROR), verdict.message
    assert verdict.speedup is None or 0.8 < verdict.speedup < 1.25


def test_a_global_flag_is_set_back_and_noted(gpu) -> None:
    verdict = gpu.evaluate(TASK, program(init="torch.backends.cuda.matmul.allow_tf32 = True"))
    assert verdict.outcome is Outcome.OK, verdict.message or verdict.guard
    assert [finding.kind for finding in verdict.guard] == ["flags", "text"]


ILLEGAL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def write(target, offset):
    tl.store(target + offset, 1.0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1024, 1024))

    def forward(self, x):
        write[(1,)](x, 1 << 40)
        return torch.relu(x @ self.weight) * 2
"""
FAULTS = {
    "illegal access": ("runtime_error", ILLEGAL),
    "out of memory": ("runtime_error", program(forward="keep = torch.empty(1 << 34, device='cuda')")),
    "memory past torch": (
        "runtime_error",
        program(
            init="p = ctypes.c_void_p()\n"
            "cuda = ctypes.CDLL('libcuda.so.1')\n"
            "if cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(12 << 30)): raise MemoryError"
        ),
    ),
    "a kernel without end": ("timeout", program(forward="torch.cuda._sleep(1 << 50)")),
    "kills itself": ("runtime_error", program(forward="os._exit(9)")),
    "an assertion on the device": (
        "runtime_error",
        program(forward="torch.zeros(4, device='cuda')[torch.full((4,), 9, device='cuda')].sum()"),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_device_affects_only_its_program(gpu, name) -> None:
    outcome, source = FAULTS[name]
    verdict = gpu.evaluate(TASK, source)
    assert verdict.outcome == outcome, verdict.message
    start = time.perf_counter()
    again = gpu.evaluate(TASK, program() + f"\n# after {name}\nn = {len(name)}\n")
    assert again.outcome is Outcome.OK, again.message or again.guard
    assert time.perf_counter() - start < 4.0
    assert 0.9 < again.speedup < 1.1


def test_a_runner_that_is_killed_from_outside_affects_no_later_program(gpu) -> None:
    def kill() -> None:
        for comm in Path("/proc").glob("[0-9]*/status"):
            try:
                if "\nUid:\t61" in comm.read_text():
                    os.kill(int(comm.parent.name), signal.SIGKILL)
            except OSError:
                pass

    timer = threading.Timer(0.9, kill)
    timer.start()
    gpu.evaluate(TASK, program(init="time.sleep(1)"))
    timer.join()
    assert gpu.evaluate(TASK, program() + "\nlast = 1\n").outcome is Outcome.OK
