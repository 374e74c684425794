"""The judge's hold on one runner: each operation of `evaluators.runner.serve.Runner` as a method.

Runs in the judge's process (trusted). The values that come back are claims of an untrusted process, of the types and
bounds of `evaluators.host.claims`; a method must never return anything else.
"""

from __future__ import annotations

import io
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from evaluators.host import claims
from evaluators.host.claims import StateForm
from evaluators.host.device import Device, Slot
from evaluators.host.exchange import BuildExtension, Exchange
from evaluators.host.outputs import ArenaOutputs, CopiedOutputs
from evaluators.host.runner_process import RunnerLimits, RunnerProcess
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.shared import nesting
from evaluators.shared.kernel_record import KernelRecord
from evaluators.shared.region import Region

if TYPE_CHECKING:
    from evaluators.host.gate import Gate


class RunnerHandle:
    """One runner. It serves a reference, a candidate, or the compilers of a build.

    Every operation takes its `timeout` in seconds and raises RunnerFailure unless the runner answers as it should.
    `has_started`: it has taken hold of the device. `waited`: seconds for which its threads waited for a core during the
    last calls. `outputs`: those of its last burst.
    """

    def __init__(
        self,
        zygote: ZygoteHandle,
        device: Device,
        slot: Slot,
        side: int,
        limits: RunnerLimits,
        environment: Mapping[str, str] | None = None,
        writable: Sequence[Path] = (),
        extensions: BuildExtension | None = None,
        *,
        lendable: Path | None = None,
    ) -> None:
        """Forks the runner: see `RunnerProcess` and `Exchange`. Raises InfraError."""
        self.process = RunnerProcess(zygote, device, slot, side, limits, environment, writable, lendable=lendable)
        self.has_started = False
        self.waited = 0.0
        self._exchange = Exchange(self.process, extensions)
        self._device = device
        self._arena = ArenaOutputs(device, limits.memory_bytes // 2) if device.shares_tensors else None
        self.outputs = self._arena or CopiedOutputs(device)
        self._gate: Gate | None = None
        self._keeps_gate = False
        self._memory_bytes = limits.device_memory_bytes

    @property
    def seconds(self) -> float:
        """The time that the last request took, by the judge's clock."""
        return self._exchange.seconds

    @property
    def gate_bytes(self) -> int:
        """Device memory of its gate, if it got that in this judgement."""
        return 0 if self._gate is None or self._keeps_gate else self._gate.words.size + self._gate.memory.size

    @property
    def libraries(self) -> set[Path]:
        """The extensions that the runner was told to load."""
        return self._exchange.libraries

    def begin_start(self, *, loads_libraries: bool = False) -> None:
        """Lets the runner take hold of the device; `end_start` waits for it. Several runners may start at once.
        `loads_libraries`: those that many programs use, too, which may take longer than one program's first call."""
        if self._arena is None:
            self._exchange.begin_start({}, loads_libraries=loads_libraries)
            return
        region = self._arena.region
        self._exchange.begin_start({"bytes": region.size}, [region.descriptor], loads_libraries=loads_libraries)

    def end_start(self, timeout: float) -> None:
        """Waits until the runner has started. Raises InfraError."""
        self._exchange.end_start(timeout)
        self.has_started = True

    def lend(
        self, environment: Mapping[str, str], folders: Sequence[Path], extensions: BuildExtension, timeout: float
    ) -> bool:
        """Gives the started runner, before it loads a program, further environment variables, folders in which it may
        write, and extensions. Returns whether it could: see `RunnerProcess.lend`. Raises InfraError."""
        if not self.process.lend(folders):
            return False
        self._exchange.extensions = extensions
        self._exchange.ask({"op": "environment", "variables": dict(environment)}, timeout, decode=claims.ignore)
        return True

    def reset(self, timeout: float) -> None:
        """Lets a reference's runner forget its program and the judge's memory, for the next judgement. It keeps its
        gate."""
        self._exchange.ask({"op": "reset"}, timeout, decode=claims.ignore)
        self._keeps_gate = self._gate is not None

    def load(self, source: str, entry: str, timeout: float) -> None:
        """Imports the program, which must define `entry`."""
        self._exchange.ask({"op": "load", "source": source, "entry": entry}, timeout, decode=claims.ignore)

    def discover(
        self,
        source: str,
        arguments: tuple[list[Any], list[Any] | None],
        capability: str,
        arch: str,
        timeout: float,
        expected: nesting.Spec | None = None,
    ) -> dict[str, Any] | None:
        """Imports, constructs and calls the program without memory, for the extensions that it asks for and the form of
        its output. `arguments` are the constructor's and, if known, a call's on the `meta` device. `capability` is the
        compute capability of the GPU that the program is to believe in; empty for none. Returns the form of an output
        of another form than the `expected` one."""
        message = {"op": "discover", "source": source, "entry": "ModelNew", "capability": capability, "arch": arch}
        with _saved(arguments) as descriptor:
            return self._exchange.ask({**message, "spec": expected}, timeout, [descriptor], decode=claims.decode_form)

    def compile(self, message: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Compiles an extension: in a process of the build farm, which never holds a program. The request and its
        answer are those of `evaluators.runner.compiling.compile_as_asked`."""
        return self._exchange.ask({"op": "compile", **message}, timeout, decode=claims.decode_compilation)

    def construct(
        self, seed: int, init_inputs: list[Any], timeout: float, *, on_host: bool = False, final: bool = True
    ) -> tuple[list[StateForm], dict[str, str]]:
        """Constructs the model under a seed. Returns the forms of its state's tensors, and the global numeric flags as
        the program left them. A model that is not `final` is replaced before anything is measured of it."""
        message = {"op": "construct", "seed": seed, "on_host": on_host, "final": final}
        with _saved(init_inputs) as descriptor:
            return self._exchange.ask(message, timeout, [descriptor], decode=claims.decode_state)

    def call(
        self, seeds: list[int], timeout: float, first: int = 0, *, as_in_burst: bool = False
    ) -> tuple[list[float], nesting.Spec | None]:
        """Calls the model once a seed, from the slot `first` on. `as_in_burst`: a single call's launches shall count
        as those of a burst do. Returns the seconds of each call by the runner's clock, or the form of an output that
        has another form than the expected one."""
        before = self.process.waited_seconds()
        if self._arena is not None:
            called = self._exchange.ask_burst(seeds, first, timeout, self._arena.tensors)
        else:
            message = {"op": "call", "seeds": seeds, "first": first, "as_in_burst": as_in_burst}
            called = self._exchange.ask(message, timeout, decode=lambda reply: claims.decode_call(reply, len(seeds)))
        self.waited = max(0.0, self.process.waited_seconds() - before)
        self.outputs.note_places(called.places)
        return called.seconds, called.mismatch

    def call_gated(
        self,
        slot: int,
        seed: int,
        inputs: tuple[torch.Tensor, torch.Tensor],
        timeout: float,
        *,
        traced: bool = False,
        tiny: bool = False,
    ) -> tuple[float, list[torch.Tensor], nesting.Spec | None]:
        """Makes one call on a slot behind the gate (`evaluators.host.gate`), whose kernels are recorded if it is
        `traced`. A `tiny` one runs the shortest kernel in place of the model's.

        `inputs`: where they lie, and where in the slot they are copied to. Returns the seconds by the judge's events,
        the outputs, and the form of an output of another form than the expected one."""
        assert self._gate is not None
        gate, start = self._gate, time.perf_counter()
        message = {
            "op": "call_gated",
            "slot": slot,
            "seed": seed,
            "ticket": gate.draw_ticket(),
            "spacers": [512 * random.randint(1, 1024), (2 << 20) * random.randint(1, 8)],
            "traced": traced,
            "tiny": tiny,
        }
        try:
            called = self._exchange.ask(
                message, timeout, decode=claims.decode_gated, when_ready=lambda: gate.open(*inputs)
            )
            if called.mismatch is not None:
                gate.rescue()
                return 0.0, [], called.mismatch
            left = max(0.0, timeout + start - time.perf_counter())
            return *gate.collect(called.places[0], left), None
        except Exception:
            gate.rescue()
            raise

    def get_state(self, forms: Sequence[StateForm], timeout: float) -> dict[str, torch.Tensor]:
        """The values of parameters and buffers by name, as the program gives them."""
        specs = [nesting.plain_spec(form.dtype, form.shape) for form in forms]
        region = self._device.allocate(nesting.layout(specs)[1])
        try:
            names = [form.name for form in forms]
            message = {"op": "get_state", "names": names, "specs": specs, "bytes": region.size}
            self._exchange.ask(message, timeout, [region.descriptor], decode=claims.ignore)
            values = [view.clone() for view in nesting.views(specs, region.memory)]
            self._device.synchronize()
            return dict(zip(names, values, strict=True))
        finally:
            region.close()

    def set_state(self, state: Mapping[str, torch.Tensor], timeout: float) -> None:
        """Overwrites the model's parameters and buffers."""
        spec, tensors = nesting.flatten(list(state.values()))
        specs = nesting.tensor_specs(spec)
        region = self._device.allocate(nesting.layout(specs)[1])
        try:
            for target, value in zip(nesting.views(specs, region.memory), tensors, strict=True):
                target.copy_(value)
            self._device.synchronize()
            message = {"op": "set_state", "names": list(state), "specs": specs, "bytes": region.size}
            self._exchange.ask(message, timeout, [region.descriptor], decode=claims.ignore)
        finally:
            region.close()

    def bind_inputs(self, example: list[Any], region: Region, slots: int, timeout: float) -> None:
        """Shows the runner `slots` sets of input tensors like `example` in `region`."""
        specs = nesting.tensor_specs(nesting.flatten(example)[0])
        message = {"op": "bind_inputs", "specs": specs, "bytes": nesting.layout(specs)[1], "slots": slots}
        placeholders = nesting.unflatten(example, [torch.empty(0) for _ in specs])
        with _saved(placeholders) as descriptor:
            self._exchange.ask(message, timeout, [descriptor, region.descriptor], decode=claims.ignore)

    def bind_outputs(self, spec: nesting.Spec, calls: int, timeout: float) -> None:
        """Tells the runner the form of outputs, for bursts of at most `calls` calls. They are found in `outputs`."""
        specs = nesting.tensor_specs(spec)
        if self._gate is not None:
            self._gate.bind(specs)
        message = {"op": "bind_outputs", "spec": spec, "bytes": nesting.layout(specs)[1], "slots": calls}
        region = self.outputs.bind(specs, calls)
        try:
            descriptors = [] if region is None else [region.descriptor]
            self._exchange.ask(message, timeout, descriptors, decode=claims.ignore)
        finally:
            if region is not None:
                region.close()

    def has_room(self, specs: list[nesting.Spec]) -> bool:
        """Whether outputs of these forms can be copied to the gate that it has, if it has one."""
        return self._gate is None or nesting.layout(specs)[1] <= self._gate.spare

    def bind_gate(self, specs: list[nesting.Spec], timeout: float) -> bool:
        """Gives the runner a gate for calls with outputs of these forms, if the device has gates. Returns whether it
        has. One that it has already must have room for these outputs (`has_room`)."""
        output_bytes = nesting.layout(specs)[1]
        if self._gate is not None:
            return True  # `bind_outputs` has told both ends of it
        self._gate = gate = self._device.new_gate(output_bytes, self._memory_bytes // 2)
        if gate is None:
            return False
        about = {"words": gate.words.size, "bytes": gate.memory.size, "spare": gate.spare, "awake": gate.awake.hex()}
        try:
            gate.bind(specs)
            descriptors = [gate.words.descriptor, gate.memory.descriptor]
            self._exchange.ask({"op": "bind_gate", **about}, timeout, descriptors, decode=claims.ignore)
        finally:
            gate.close()
        return True

    def trace(self, timeout: float) -> list[KernelRecord] | None:
        """Every kernel of the last call behind the gate, which was traced, as claimed; None without a tracer."""
        return self._exchange.ask({"op": "trace"}, timeout, decode=claims.decode_trace)

    def integrity(self, timeout: float) -> tuple[tuple[str, ...], dict[str, str]]:
        """The names of the functions by which it measures that the program has replaced, and the global numeric flags
        as its last call left them: both as claimed."""
        return self._exchange.ask({"op": "integrity"}, timeout, decode=claims.decode_integrity)

    def close(self) -> None:
        """Kills the runner with everything it started, and removes its folder. Never raises: the verdict stands."""
        self.process.close()
        self._give_memory_back()

    def end(self) -> None:
        """Closes it. Raises InfraError if something that it started is still there."""
        try:
            self.process.end()
        finally:
            self._give_memory_back()

    def _give_memory_back(self) -> None:
        self._gate = None  # its memory goes with it
        if self._arena is not None:
            self._arena.close()


@contextmanager
def _saved(value: Any) -> Iterator[int]:
    """A descriptor of a memory file that holds `value`, for the runner to load. The judge never loads the runner's."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    descriptor = os.memfd_create("warpsmith-value")
    try:
        left = buffer.getbuffer()
        while left:
            left = left[os.write(descriptor, left) :]  # Linux writes less than 2 GiB at once
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
