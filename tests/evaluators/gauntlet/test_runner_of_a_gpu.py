"""Exploits that reach into a GPU's runner find there what they look for.

A runner without a GPU serves them: `Runner`, `CudaRunner`, `Gate` and `Tracer` are the real ones. CUDA, its driver and
CUPTI are stand-ins, since continuous integration has no GPU. This does not show whether an exploit is paid. It shows
that the program does not fail on an interface that is no longer there, and that it answers all calls whose outputs the
judge reads.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch.cuda import _gpu_trace
from torch.overrides import TorchFunctionMode
from torch.utils import cpp_extension

from evaluators.gauntlet import GauntletProgram, discover
from evaluators.runner.serve import Runner
from evaluators.shared import nesting
from evaluators.shared.protocol import READY, PeerClosed
from evaluators.tasks import TaskProgram, find_task

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the gauntlet shows it on a GPU")

ONLY_THERE = ("cuEventRecordWithFlags", "__cuda_array_interface__")  # a graph that computes, memory of the GPU
REACHING = [
    program
    for program in discover("cuda")
    if program.is_exploit
    and program.family in ("batching", "gates", "measuring_state", "streams")
    and ("_getframe" in program.source or "gc.get_objects" in program.source)
    and not any(word in program.source for word in ONLY_THERE)
]
SLOTS, WORD_BYTES, MEMORY_BYTES = 8, 1 << 20, 1 << 20
FRESH = ("shared.cuda_memory", "shared.awake", "runner.tracer", "runner.gate", "runner.cuda")
GATED = {"op": "call_gated", "seed": 0, "ticket": 7, "spacers": [1, 1], "tiny": False}


class Driver(ModuleType):
    """CUDA's driver: whatever it is asked for succeeds."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=0)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return (lambda *_: (0,)) if name.startswith("cu") else MagicMock()


class Event:
    """An event. Each two lie a tenth of a millisecond apart."""

    cuda_event = 0

    def __init__(self, **_: Any) -> None:
        self.recorded = 0

    def record(self, stream: Any = None) -> None:
        self.recorded += 1
        _gpu_trace.EventRecordCallbacks.fire_callbacks(0, 0)

    def elapsed_time(self, end: Event) -> float:
        return float(ctypes.c_float(0.1).value)

    wait = synchronize = query = record


class OnHost(TorchFunctionMode):
    """Puts tensors for the GPU on the host, and says that they are on the GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__self__", None) is torch.Tensor.is_cuda:
            return True
        if func is torch.Tensor.pin_memory:
            return args[0]
        given = dict(kwargs or {})
        given.pop("pin_memory", None)
        if str(given.get("device", "")).startswith("cuda"):
            given["device"] = "cpu"
        return func(*args, **given)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules of a GPU's runner, imported anew, since exploits replace functions there."""
    driver = Driver("cuda.bindings.driver")
    bindings = SimpleNamespace(driver=driver)
    cupti = SimpleNamespace(cupti=MagicMock())
    for name, module in {"cuda": SimpleNamespace(bindings=bindings), "cuda.bindings": bindings, "cupti": cupti}.items():
        monkeypatch.setitem(sys.modules, name, module)
    fresh = [f"evaluators.{name}" for name in FRESH]
    for name in fresh:
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    stand_ins = {
        "Event": Event,
        "Stream": MagicMock,
        "default_generators": [torch.Generator()],
        "stream": lambda _: contextlib.nullcontext(),
        "graph": lambda *_, **__: contextlib.nullcontext(),
    }
    for name in ("init", "default_stream", "current_stream", "synchronize", "empty_cache", "_sleep", "CUDAGraph"):
        stand_ins[name] = MagicMock()
    for name, value in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, value)
    for name in ("_cuda_emptyCache", "_activate_gpu_trace"):
        monkeypatch.setattr(torch._C, name, lambda: None, raising=False)
    monkeypatch.setattr(cpp_extension, "load_inline", lambda **_: MagicMock())
    monkeypatch.setattr(_gpu_trace.EventRecordCallbacks, "callback_list", [])
    modules = {name.rpartition(".")[2]: importlib.import_module(name) for name in fresh}
    monkeypatch.setattr(modules["cuda"], "_Event", Event)
    monkeypatch.setattr(modules["gate"], "ctypes", MagicMock())
    threads = torch.get_num_threads()
    yield SimpleNamespace(**modules)
    torch.set_num_threads(threads)
    gc.unfreeze()


class Judge:
    """The judge's end of the channel: it asks for calls on inputs that it draws, and keeps the replies with the outputs
    and what these must be."""

    def __init__(self, program: TaskProgram, reference: torch.nn.Module) -> None:
        self.program, self.reference, self.seed = program, reference, 0
        self.requests = self._requests()
        self.expected: list[torch.Tensor] = []
        self.replies: list[dict[str, Any]] = []
        self.seen: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def attach(self, runner: Runner) -> None:
        self.runner = runner
        self.slots, self.outputs = list(runner.inputs), [outputs[0] for outputs in runner.outputs]

    def _requests(self) -> Any:
        yield {"op": "start", "loads_libraries": True}
        for first, calls in ((3, 1), (1, 1), (2, 4)):
            yield {"op": "call", "seeds": list(range(calls)), "first": first, "as_in_burst": False}
        for is_traced in (False, False, True):
            yield {**GATED, "slot": 5, "traced": is_traced}
        yield {"op": "trace"}
        yield {"op": "call", "seeds": list(range(6)), "first": 0, "as_in_burst": False}
        yield {**GATED, "slot": 1, "traced": False}
        yield {"op": "call", "seeds": list(range(5)), "first": 3, "as_in_burst": False}
        yield {"op": "integrity"}

    def write(self, slot: int) -> None:
        """Puts fresh inputs into a slot."""
        self.seed += 1
        values = self.program.inputs(self.seed)
        for target, value in zip(self.slots[slot], values, strict=True):
            target.copy_(value)
        self.expected.append(self.reference(*values))

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], list[int]]:
        self.asked = next(self.requests, None)
        if self.asked is None:
            raise PeerClosed
        self.expected = []
        for output in self.outputs:
            output.fill_(float("nan"))
        for call in range(len(self.asked.get("seeds", ()))):
            self.write(self.asked["first"] + call)
        return dict(self.asked), []

    def send_body(self, body: bytes, descriptors: Any = ()) -> None:
        assert body == READY
        assert self.asked is not None
        self.write(self.asked["slot"])  # the inputs of a gated call come once its gate is open

    def send(self, reply: dict[str, Any], descriptors: Any = ()) -> None:
        assert self.asked is not None
        self.replies.append(reply)
        gate = self.runner.gate
        assert gate is not None
        outputs = gate._kept if self.asked["op"] == "call_gated" else self.outputs
        self.seen += [
            (f"{self.asked}", output.clone(), expected)
            for output, expected in zip(outputs, self.expected, strict=False)
        ]

    def fileno(self) -> int:
        return -1


@pytest.mark.slow
@pytest.mark.parametrize("program", REACHING, ids=lambda program: program.id)
def test_an_exploit_knows_the_runner_that_it_reaches_into(program: GauntletProgram, gpu) -> None:
    task = TaskProgram(find_task(program.task, "cpu"))
    arguments, inputs = task.init_inputs(1), task.inputs(1)
    spec = task.output_spec(1, arguments, inputs)
    [form] = nesting.tensor_specs(spec)
    with OnHost(), torch.no_grad():
        device = gpu.cuda.CudaRunner(1, 1 << 16)
        judge = Judge(task, task.model(1, arguments))
        runner = Runner(judge, [], device)  # type: ignore[arg-type]
        runner.output_spec = spec
        runner.inputs = [tuple(torch.empty_like(value) for value in inputs) for _ in range(SLOTS)]
        size = nesting.layout([form])[1]
        memory = torch.zeros(SLOTS * size, dtype=torch.uint8)
        runner.outputs = [nesting.views([form], memory[slot * size : (slot + 1) * size]) for slot in range(SLOTS)]
        words, behind = (torch.zeros(bytes, dtype=torch.uint8) for bytes in (WORD_BYTES, MEMORY_BYTES + 2 * size))
        runner.gate = gpu.gate.Gate(words, behind, size, b"code")
        runner.gate.bind(spec)
        judge.attach(runner)
        module: dict[str, Any] = {"__name__": "candidate"}
        exec(compile(program.source, "candidate.py", "exec"), module)
        runner.model = module["ModelNew"](*arguments)
        runner.model.load_state_dict(judge.reference.state_dict())
        runner.serve()
    errors = [reply for reply in judge.replies if "error" in reply or "mismatch" in reply]
    assert not errors
    assert len(judge.seen) == 21
    for request, output, expected in judge.seen:
        assert torch.allclose(output, expected, rtol=1e-4, atol=1e-5, equal_nan=False), request
