"""Calls that a GPU makes once the judge lets it, whose outputs lie where the judge can read them.

Runs in the candidate's process (untrusted). Nothing in here measures: the judge opens the gate, waits at its other end
and reads the outputs, all in the order of a stream of its own (`evaluators.host.gate`). A program that changes what is
here can only make its own outputs wrong, or late.

While a call waits, a kernel of ours looks for the gate's opening, too: so the context is running when the gate opens,
and the driver need not first find out that it has work. A program could do that for itself, and take less for a call
than another one, if it were not done for all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from cuda.bindings import driver
from torch import Tensor

from evaluators.runner.tracer import Tracer
from evaluators.shared import nesting
from evaluators.shared.awake import AWAKE_NAME
from evaluators.shared.cuda_memory import GATE_DONE, GATE_GO, GATE_ROW_BYTES, GATE_ROWS, checked

_ADDRESS, _COPY = Tensor.data_ptr, Tensor.copy_
_EQUAL = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ
_MOST_AWAKE_NS = 20_000_000  # then the stream waits as if there were no such kernel


class _Awake:
    """A kernel of one thread that ends when a gate opens, or after a while."""

    def __init__(self, stream: driver.CUstream, code: bytes) -> None:
        """`code`: what `evaluators.shared.awake` made of it for this GPU."""
        self._stream, self._launch, self._checked = stream, driver.cuLaunchKernel, checked
        self._module = checked(driver.cuModuleLoadData(code))
        self._kernel = checked(driver.cuModuleGetFunction(self._module, AWAKE_NAME))
        self._types = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64

    def until(self, address: int, ticket: int, most_ns: int = _MOST_AWAKE_NS) -> None:
        """Launches it: until the word at `address` is `ticket`."""
        parameters = (address, ticket, most_ns), self._types
        self._checked(self._launch(self._kernel, 1, 1, 1, 1, 1, 1, 0, self._stream, parameters, 0))


class Gate:
    """One gate of the judge, and memory for the outputs behind it."""

    def __init__(self, words: Tensor, memory: Tensor, spare: int, awake: bytes) -> None:
        """`words` and `memory`: the judge's, mapped here. `spare`: bytes at its begin for copies of outputs. `awake`:
        the code of the kernel that keeps the context awake."""
        torch.cuda.empty_cache()  # what comes from there lies elsewhere
        arena = ctypes.CDLL(None).warpsmith_open_device_arena
        arena(ctypes.c_size_t(memory.data_ptr() + spare), ctypes.c_size_t(memory.numel() - spare))
        self._words, self._memory, self._spare = words, memory, memory[:spare]
        self._base, self._size = memory.data_ptr(), memory.numel()
        self._stream = driver.CUstream(0)
        self._wait, self._write = driver.cuStreamWaitValue32, driver.cuStreamWriteValue32
        self._checked = checked
        self._awake = _Awake(self._stream, awake)
        self._awake.until(words.data_ptr(), 0, 0)  # the first launch loads it
        self._kept: list[Tensor] = []
        self._spec: nesting.Spec = {}
        self._forms: list[nesting.Spec] = []
        self._copies: list[Tensor] = []

    def bind(self, spec: nesting.Spec) -> None:
        """Learns the form of outputs. Copies have their strides, with which the judge reads."""
        self._spec, self._forms = spec, nesting.tensor_specs(spec)
        offsets, needed = nesting.layout(self._forms)
        has_room = needed <= self._spare.numel()
        places = zip(self._forms, offsets, strict=True) if has_room else ()
        self._copies = [nesting.view_at(form, self._spare, offset) for form, offset in places]

    def forget(self) -> None:
        """Frees the outputs of the last call."""
        self._kept = []

    def call(
        self,
        model: Callable[..., Any],
        inputs: Sequence[Any],
        message: dict[str, Any],
        ready: Callable[[], None],
        tracer: Tracer | None,
    ) -> tuple[Any, list[int] | None]:
        """Launches one call behind the gate, which the judge opens once it is told that this is `ready`. Returns the
        call's output, and where that will lie in the memory, one number a tensor; None if it has another form than
        expected. A tiny call runs one kernel of ours."""
        words, ticket = self._words.data_ptr(), message["ticket"]
        self.forget()
        spacers = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in message["spacers"]]
        if tracer is None:  # it would be a kernel that runs before the recorded call
            self._awake.until(words + GATE_GO, ticket)
        self._checked(self._wait(self._stream, words + GATE_GO, ticket, _EQUAL))
        ready()
        if message["tiny"]:
            self._memory[:GATE_ROW_BYTES].zero_()
            self._signal(ticket, nowhere := [0] * len(self._forms))
            return None, nowhere
        if tracer is not None:
            tracer.mark(0)
        output = model(*inputs)
        if tracer is not None:
            tracer.mark(1)
        tensors = nesting.tensors_of_form(self._spec, output)
        places = None if tensors is None else [self._place(*one) for one in enumerate(tensors)]
        self._signal(ticket, places or [])
        spacers.clear()
        return output, places

    def _signal(self, ticket: int, places: list[int]) -> None:
        """Says in the stream's order where the outputs lie, and that they are there."""
        words = self._words.data_ptr()
        for index, place in enumerate(places):
            self._checked(self._write(self._stream, words + GATE_ROWS + 4 * index, place // GATE_ROW_BYTES, 0))
        self._checked(self._write(self._stream, words + GATE_DONE, ticket, 0))

    def _place(self, index: int, tensor: Tensor) -> int:
        """Where a tensor lies. It stays there until the next call. What lies elsewhere, as in an input, is copied."""
        if not tensor.numel():
            return 0
        is_inside = self._base <= _ADDRESS(tensor) < self._base + self._size
        if not is_inside or nesting.is_lazy(tensor) or [*tensor.stride()] != self._forms[index]["stride"]:
            copy = self._copies[index]
            with torch._C.DisableTorchFunctionSubclass():
                _COPY(*nesting.without_repeats(copy, tensor))
            tensor = copy
        self._kept.append(tensor)
        return int(_ADDRESS(tensor) - self._base)
