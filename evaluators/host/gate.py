"""A gate: one call of a runner on the GPU, timed by events of the judge's own context.

Runs in the judge's process (trusted). The judge's stream copies inputs that nobody has seen to where the runner reads
them, empties the cache, opens the gate, waits at the other end and copies the outputs to memory of its own; its events
enclose all of that. The runner's stream waits at the gate, makes the call and signals the other end. Two contexts never
run on the GPU at the same time, and the judge copies by kernels, not by copy engines, which do run beside other
contexts. So whatever a program does for a call it does between these events: it cannot begin before it knows the
inputs, or end after its outputs are read. Nothing in its process is believed, and a signal that comes too early only
makes its outputs wrong.

The runner's context is kept awake by a kernel of ours (`evaluators.shared.awake`) until the gate opens. Without it a
switch to a context that only waits takes longer by 10 to 20 µs on an H200, and varies more; a program could have that
for itself.

The gate's words are waited for and written in stream order (CUDA driver API, "Stream Memory Operations").
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

import torch
from cuda.bindings import driver
from torch import Tensor

from evaluators.failures import InfraError, RunnerFailure
from evaluators.records import Outcome
from evaluators.shared import nesting
from evaluators.shared.awake import translate_awake
from evaluators.shared.cuda_memory import (
    GATE_BYTES,
    GATE_DONE,
    GATE_GO,
    GATE_ROW_BYTES,
    GATE_ROWS,
    CudaMemoryError,
    allocate,
    checked,
)

_EQUAL = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ
_MPS_ENABLED = getattr(driver.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_MPS_ENABLED", None)  # older drivers lack it
_COVER_BYTES = 64 << 20  # writing so many takes about as long as launching what comes after
_SLEEP_SECONDS = 2e-5
_RESCUE_SECONDS = 5.0
_SEGMENT_BYTES = 2 << 20  # torch asks for segments of so many bytes, which shall lie on pages of the GPU


class GateTimer:
    """The judge's streams, events and scratch memory, which all gates of one GPU share.

    `awake`: code for the runners, of the kernel that keeps their contexts awake. `is_stuck`: its stream did not go on
    after a program had failed, so that another timer is needed.
    """

    def __init__(self, flush_bytes: int, ordinal: int) -> None:
        """Raises InfraError where two contexts may run at the same time, and CudaMemoryError."""
        if _MPS_ENABLED is not None and checked(driver.cuDeviceGetAttribute(_MPS_ENABLED, ordinal)):
            raise InfraError(
                "MPS serves this GPU, so that no time is one program's own: set CUDA_MPS_PIPE_DIRECTORY to an empty "
                "folder for the evaluator, or end MPS"
            )
        self.stream, self.rescue = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)  # never one behind the other
        self.is_stuck = False
        # Not every GPU has lines that persist.
        self.has_persisting_lines = driver.cuCtxResetPersistingL2Cache()[0] == driver.CUresult.CUDA_SUCCESS
        self.awake = translate_awake()
        self.scratch = torch.empty(flush_bytes // 4, dtype=torch.int32, device="cuda")
        self.cover = self.scratch[: _COVER_BYTES // 4]
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))


class Gate:
    """A gate for one runner, with memory for its tensors that the judge reads.

    `words`, `memory`: regions to show the runner. `spare`: bytes at the begin of `memory` for copies of outputs.
    `awake`: the code of the kernel that keeps its context awake.
    """

    def __init__(self, timer: GateTimer, ordinal: int, output_bytes: int, memory_bytes: int) -> None:
        """`output_bytes`: those of one call. `memory_bytes`: for what the runner allocates. Raises CudaMemoryError."""
        self._timer = timer
        self.spare = -(-output_bytes // _SEGMENT_BYTES) * _SEGMENT_BYTES
        self.awake = timer.awake
        self.words = allocate(GATE_BYTES, ordinal)
        try:
            self.memory = allocate(self.spare + _whole_rows(memory_bytes), ordinal)
        except CudaMemoryError:
            self.words.close()
            raise
        self.ticket = 0
        self._is_open = False
        self._address = self.words.memory.data_ptr()
        self._first_rows = self.words.memory[GATE_ROWS:].view(torch.int32)
        self._rows = self.memory.memory.view(torch.int64).view(-1, GATE_ROW_BYTES // 8)
        self._specs: list[nesting.Spec] = []
        self._counts: list[Tensor] = []  # 0, 1, ... for the rows of each output
        self._outputs: list[Tensor] = []

    def bind(self, specs: list[nesting.Spec]) -> None:
        """Prepares for outputs of these forms."""
        self._specs = specs
        rows = [-(-(nesting.bytes_spanned(spec) + GATE_ROW_BYTES - 1) // GATE_ROW_BYTES) for spec in specs]
        self._counts = [torch.arange(count, device="cuda") for count in rows]
        self._outputs = [self._rows.new_empty(count, self._rows.shape[1]) for count in rows]
        with torch.cuda.stream(self._timer.stream):
            # No kernel is loaded for the first time while the stream waits: that would wait for the stream.
            self._read_outputs()
        self._timer.stream.synchronize()

    def draw_ticket(self) -> int:
        """The number by which the next call knows the gate."""
        self.ticket, self._is_open = secrets.randbelow((1 << 31) - 1) + 1, False
        return self.ticket

    def open(self, source: Tensor, target: Tensor) -> None:
        """Copies the inputs from `source` to `target`, where the runner reads them, opens the gate, and reads the
        outputs behind it: all that in the stream's order, without waiting for it. Raises InfraError."""
        self._is_open = True
        try:
            self._enqueue(source, target)
        except CudaMemoryError as error:
            raise InfraError(f"a gate cannot be opened: {error}") from error

    def _enqueue(self, source: Tensor, target: Tensor) -> None:
        timer = self._timer
        stream = driver.CUstream(timer.stream.cuda_stream)
        if timer.has_persisting_lines:
            checked(driver.cuCtxResetPersistingL2Cache())  # emptying the cache would leave them there
        with torch.cuda.stream(timer.stream):
            timer.cover.zero_()
            timer.begin.record()
            torch.bitwise_or(source, 0, out=target)  # a kernel; `copy_` may use a copy engine
            timer.scratch.zero_()
            checked(driver.cuStreamWriteValue32(stream, self._address + GATE_GO, self.ticket, 0))
            checked(driver.cuStreamWaitValue32(stream, self._address + GATE_DONE, self.ticket, _EQUAL))
            self._read_outputs()
            timer.end.record()

    def _read_outputs(self) -> None:
        """Copies the outputs from the rows that the runner names. Whatever it names, nothing is read outside its
        memory."""
        for index, (count, output) in enumerate(zip(self._counts, self._outputs, strict=True)):
            rows = (count + self._first_rows[index]).clamp_(0, len(self._rows) - 1)
            torch.index_select(self._rows, 0, rows, out=output)

    def collect(self, places: Sequence[int], timeout: float) -> tuple[float, list[Tensor]]:
        """The seconds since the gate began to open, and the outputs, which stand until the next call. `places`: where
        they lay in the memory, as claimed. Raises RunnerFailure."""
        if not self._is_open:
            raise RunnerFailure(Outcome.RUNTIME_ERROR, "the program answered before it was called")
        deadline = time.perf_counter() + timeout
        while not self._timer.end.query():
            if time.perf_counter() > deadline:
                raise RunnerFailure(Outcome.TIMEOUT, f"the GPU was not done within {timeout:.1f} s")
            time.sleep(_SLEEP_SECONDS)
        if len(places) != len(self._specs):
            raise RunnerFailure(Outcome.RUNTIME_ERROR, f"{len(places)} places of {len(self._specs)} outputs")
        try:
            outputs = [
                nesting.view_at(spec, output.view(-1).view(torch.uint8), place % GATE_ROW_BYTES)
                for spec, output, place in zip(self._specs, self._outputs, places, strict=True)
            ]
        except ValueError as error:
            raise RunnerFailure(Outcome.RUNTIME_ERROR, str(error)) from None
        return self._timer.begin.elapsed_time(self._timer.end) * 1e-3, outputs

    def rescue(self) -> None:
        """Lets the judge's stream go on if the runner does not. Raises InfraError if that does not help."""
        if not self._is_open:
            return
        stream = driver.CUstream(self._timer.rescue.cuda_stream)
        try:
            checked(driver.cuStreamWriteValue32(stream, self._address + GATE_DONE, self.ticket, 0))
        except CudaMemoryError as error:
            raise InfraError(f"a gate cannot be opened: {error}") from error
        deadline = time.perf_counter() + _RESCUE_SECONDS
        while not self._timer.stream.query():
            if time.perf_counter() > deadline:
                self._timer.is_stuck = True
                raise InfraError("the GPU does not go on after a program failed there")
            time.sleep(_SLEEP_SECONDS)

    def close(self) -> None:
        """Closes the descriptors. The memory stays as long as it is used."""
        self.words.close()
        self.memory.close()


def _whole_rows(size: int) -> int:
    return -(-size // GATE_ROW_BYTES) * GATE_ROW_BYTES
