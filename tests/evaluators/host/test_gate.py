"""Calls behind gates: the judge's events hold all that a program does for a call, and its outputs are read in order.

Most of it needs a GPU. What gates support is tested on simulated calls (`tests/evaluators/timing/test_supported.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from configs.schema import LimitsConfig
from evaluators.evaluator import Evaluator
from evaluators.records import Outcome, Task
from tests.folders import open_folder

pytestmark = pytest.mark.cuda

# Some 0.6 ms on an H200: twelve kernels over 64 MB, which the L2 cache does not hold.
BODY = "for _ in range(6):\n            x = torch.relu(x) + 0.5\n        return x"
SOURCE = """
import sys
import torch
import torch.nn as nn

{top}


class {name}(nn.Module):
    def forward(self, x):
        {body}


def get_inputs():
    return [torch.randn(16, 1024, 1024)]


def get_init_inputs():
    return []
"""
TASK = Task("test/relus", 1, "relus", SOURCE.format(name="Model", top="", body=BODY))

# The locals of the caller that makes a call behind a gate, and its `Gate`.
FRAMES = """
def gated():
    frame = sys._getframe()
    while frame := frame.f_back:
        if frame.f_code.co_name == "call" and "ticket" in frame.f_locals:
            return frame.f_locals["self"], frame.f_locals
    return None, {}
"""
HONEST = f"""return self.work(x)

    def work(self, x):
        {BODY}"""


@pytest.fixture(scope="module")
def gpu() -> Iterator[Evaluator]:
    limits = LimitsConfig(start_seconds=20.0, call_seconds=2.0, gpu_memory_gib=8.0)
    with open_folder() as store, Evaluator(arch="auto", limits=limits, store=store) as made:
        made.start()
        yield made


def program(body: str, top: str = "") -> str:
    return SOURCE.format(name="ModelNew", top=FRAMES + top, body=body)


def test_a_program_of_the_same_kernels_is_paid_what_it_is_worth(gpu) -> None:
    verdict = gpu.evaluate(TASK, program(HONEST))
    assert verdict.outcome is Outcome.OK, verdict.message or verdict.guard
    assert 0.97 < verdict.speedup < 1.03


def test_a_program_with_fewer_kernels_is_paid_in_full(gpu) -> None:
    verdict = gpu.evaluate(TASK, program("return torch.relu(x) + 3.0"))  # two kernels that do the work of twelve
    assert verdict.outcome is Outcome.OK, verdict.message or verdict.guard
    assert 5.0 < verdict.speedup < 7.0


CHEATS = {
    "seconds that are less": (
        "runner = sys._getframe(1)\n"
        "        while runner and 'seconds' not in runner.f_locals:\n            runner = runner.f_back\n"
        "        if runner and type(runner.f_locals['seconds']) is list:\n"
        "            runner.f_locals['seconds'][:] = [0.6 * one for one in runner.f_locals['seconds']]\n"
        f"        {HONEST}"
    ),
    "work that goes on after the reply": (
        "y = self.work(x)\n"
        "        if gated()[0] is not None:\n"
        "            if not hasattr(self, 'side'):\n                self.side = torch.cuda.Stream()\n"
        "            self.side.wait_stream(torch.cuda.current_stream())\n"
        "            with torch.cuda.stream(self.side):\n                torch.cuda._sleep(8_000_000)\n"
        "        return y\n\n    def work(self, x):\n        " + BODY
    ),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_paid_no_more_than_its_work(gpu, name) -> None:
    verdict = gpu.evaluate(TASK, program(CHEATS[name]))
    assert verdict.outcome in (Outcome.OK, Outcome.SUSPECT, Outcome.HACK), verdict.message
    assert verdict.outcome is not Outcome.OK or verdict.speedup < 1.05


WRONG = {
    "a signal before the work": (
        "gate, names = gated()\n"
        "        if gate is not None:\n            gate._signal(names['ticket'], [0])\n"
        f"        {HONEST}"
    ),
    "another place": (
        "y = self.work(x)\n"
        "        gate, _ = gated()\n"
        "        if gate is not None:\n            gate._place = lambda index, tensor: 512 << 20\n"
        "        return y\n\n    def work(self, x):\n        " + BODY
    ),
    "a place far outside": (
        "y = self.work(x)\n"
        "        gate, _ = gated()\n"
        "        if gate is not None:\n            gate._place = lambda index, tensor: 1 << 40\n"
        "        return y\n\n    def work(self, x):\n        " + BODY
    ),
    "nothing computed behind gates": (
        f"if gated()[0] is not None:\n            return torch.empty_like(x)\n        {HONEST}"
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_outputs_that_are_not_there_are_wrong(gpu, name) -> None:
    verdict = gpu.evaluate(TASK, program(WRONG[name]))
    assert verdict.outcome in (Outcome.WRONG, Outcome.RUNTIME_ERROR), (verdict.message, verdict.speedups)


HANGS = {
    "no signal": (
        "gate, _ = gated()\n"
        "        if gate is not None:\n            gate._signal = lambda *arguments: None\n"
        f"        {HONEST}"
    ),
    "a kernel without end": (f"if gated()[0] is not None:\n            torch.cuda._sleep(1 << 50)\n        {HONEST}"),
    "an error": f"if gated()[0] is not None:\n            raise ValueError('here')\n        {HONEST}",
}


@pytest.mark.parametrize("name", HANGS)
def test_a_program_that_leaves_its_gate_shut_fails_and_the_next_one_is_judged(gpu, name) -> None:
    verdict = gpu.evaluate(TASK, program(HANGS[name]))
    assert verdict.outcome in (Outcome.TIMEOUT, Outcome.RUNTIME_ERROR), verdict.message
    again = gpu.evaluate(TASK, program(HONEST) + f"\n# after {name}\nn = {len(name)}\n")
    assert again.outcome is Outcome.OK, again.message or again.guard


OUTSIDE = {
    "an input": ("return x", "return x.clone()"),
    "a view": ("return x[1:]", "return x[1:].clone()"),
    "what a graph fills": (
        "if x.data_ptr() not in graphs:\n"
        "            side = torch.cuda.Stream()\n"
        "            with torch.cuda.stream(side):\n                torch.relu(x)\n"
        "            torch.cuda.synchronize()\n"
        "            graph = torch.cuda.CUDAGraph()\n"
        "            with torch.cuda.graph(graph):\n                y = torch.relu(x)\n"
        "            graphs[x.data_ptr()] = graph, y\n"
        "        graph, y = graphs[x.data_ptr()]\n        graph.replay()\n        return y",
        "return torch.relu(x)",
    ),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_output_is_read_wherever_it_lies(gpu, name) -> None:
    body, reference = OUTSIDE[name]
    task = Task("test/outside", 1, "outside", SOURCE.format(name="Model", top="", body=reference))
    verdict = gpu.evaluate(task, program(body, top="graphs = {}\n"))
    assert verdict.outcome is Outcome.OK, verdict.message or verdict.guard
