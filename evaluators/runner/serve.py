"""Loads one program and calls it when the judge says so; the same code for reference and candidate.

Runs in the candidate's process (untrusted). It may hold only the program and the current input. On a GPU it also holds
the reference, which is no secret, until the candidate comes. Nothing that it reports decides a verdict: its clock
is only compared with the judge's, and its outputs are read from the judge's memory.
"""

from __future__ import annotations

import gc
import importlib.util
import io
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from evaluators.runner import native
from evaluators.runner.arena import Arena
from evaluators.runner.device import RunnerDevice
from evaluators.runner.interception import Interception
from evaluators.runner.originals import Originals
from evaluators.runner.rehearsal import rehearsing
from evaluators.shared import nesting
from evaluators.shared.protocol import READY, Channel, PeerClosed

if TYPE_CHECKING:
    from evaluators.runner.gate import Gate
    from evaluators.runner.tracer import Tracer

MAX_MESSAGE_CHARACTERS = 4000
_NAMES = {"Model": "reference", "ModelNew": "candidate"}  # of a program's module, by the class that it must define
_NO_MODEL = nn.Identity()
_ADDRESS = Tensor.data_ptr
_STATE_DICT, _COPY, _PLAIN = nn.Module.state_dict, Tensor.copy_, (Tensor, nn.Parameter)
_OWN_FILES = tuple(f"{name}.py" for name in _NAMES.values())


class Runner:
    """Serves one judge over one channel, until it is killed."""

    def __init__(self, channel: Channel, active: list[str], device: RunnerDevice) -> None:
        self.channel = channel
        self.active = active
        self.device = device
        self.kind: Callable[..., nn.Module] | None = None
        self.model: nn.Module = _NO_MODEL
        self.state: dict[str, Any] = {}  # of the model, as it was constructed
        sys.dont_write_bytecode = True  # no program may be taken for the one before, or leave files behind
        self.inputs: list[tuple[Any, ...]] = []
        self.output_spec: nesting.Spec | None = None
        self.outputs: list[list[Tensor]] = []
        self.arena: Arena | None = None
        self.gate: Gate | None = None
        self.tracer: Tracer | None = None
        self._serve_bursts: Callable[..., Any] | None = None
        self._interception = Interception(self._ask_judge)
        self.originals = Originals(())
        self.handlers: dict[str, Callable[..., dict[str, Any]]] = {
            "start": self.start,
            "environment": self.environment,
            "reset": self.reset,
            "load": self.load,
            "construct": self.construct,
            "get_state": self.get_state,
            "set_state": self.set_state,
            "bind_inputs": self.bind_inputs,
            "bind_outputs": self.bind_outputs,
            "bind_gate": self.bind_gate,
            "call": self.call,
            "call_gated": self.call_gated,
            "trace": self.trace,
            "integrity": self.integrity,
            "discover": self.discover,
            "compile": self.compile,
        }

    def serve(self) -> None:
        handlers, message = self.handlers, {"op": "start"}
        while True:
            try:
                reply = self.serve_bursts()
                if reply is None:
                    message, descriptors = self.channel.receive()
                    reply = handlers[message["op"]](message, *descriptors)
            except PeerClosed:
                return
            except BaseException as error:  # noqa: BLE001  (a candidate may raise anything, SystemExit included)
                reply = {"error": type(error).__name__, "message": _explain(error)}
            self.channel.send(reply)

    def _ask_judge(self, request: dict[str, Any]) -> dict[str, Any]:
        """Asks the judge something while a request of the judge is being served."""
        self.channel.send(request)
        return self.channel.receive()[0]

    def start(self, message: dict[str, Any], *arena: int) -> dict[str, Any]:
        """Takes hold of the device, and names the active containment; before any line of the program has run."""
        self.device.start()
        if message["loads_libraries"]:
            self.device.load_libraries()
        for descriptor in arena:
            self.arena = Arena(descriptor, message["bytes"])
            self._serve_bursts = native.burst_server()
        return {"active": self.active}

    def environment(self, message: dict[str, Any]) -> dict[str, Any]:
        """Takes further environment variables, before any line of the program has run."""
        os.environ.update(message["variables"])
        return {}

    def reset(self, message: dict[str, Any]) -> dict[str, Any]:
        """Forgets the program, and the judge's memory but for its gate. For a reference, which the next judgement may
        use: it serves no candidate."""
        self._forget_program()
        self.inputs, self.outputs, self.output_spec, self.tracer = [], [], None, None
        if self.gate is not None:
            self.gate.forget()
        gc.unfreeze()
        gc.collect()
        self.device.finish()
        self.device.tidy()
        return {}

    def _forget_program(self) -> None:
        self.kind, self.model, self.state = None, _NO_MODEL, {}
        for file in _OWN_FILES:
            Path(file).unlink(missing_ok=True)
            if sys.modules.pop(file.removesuffix(".py"), None):
                gc.collect()

    def load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Imports the program in place of the one before, and forgets that one but for its changes to other modules."""
        self._interception.install()
        self._forget_program()
        name = _NAMES[message["entry"]]
        program = Path.cwd() / f"{name}.py"
        program.write_text(message["source"], encoding="utf-8", errors="surrogatepass")
        spec = importlib.util.spec_from_file_location(name, program)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        if name == "candidate":  # nothing that a reference does is in question
            self.originals = Originals((self, self.channel, self.device))
        spec.loader.exec_module(module)
        self.kind = getattr(module, message["entry"], None)
        if self.kind is None:
            return {"error": "NoEntry", "message": f"the program does not define {message['entry']}"}
        return {}

    def construct(self, message: dict[str, Any], arguments: int) -> dict[str, Any]:
        """Constructs the model under the judge's seed."""
        with os.fdopen(arguments, "rb") as file:
            init_inputs = torch.load(io.BytesIO(file.read()), weights_only=False)
        self.state = {}
        kind, self.model = self.kind, _NO_MODEL  # frees the memory of the model before, which may be needed
        assert kind is not None
        self.model = self.device.construct(lambda: kind(*init_inputs), message["seed"], message["on_host"])
        state = self.state = dict(_STATE_DICT(self.model))
        flags = self.device.flags()
        self.device.enforce_flags()
        if message["final"]:
            gc.freeze()
        return {
            "flags": flags,
            "state": [nesting.form_of(name, value) for name, value in state.items() if nesting.is_plain(value)],
        }

    def get_state(self, message: dict[str, Any], region: int) -> dict[str, Any]:
        """Copies the model's parameters and buffers to the judge."""
        values = nesting.views(message["specs"], self.device.map(region, message["bytes"]))
        own = _STATE_DICT(self.model)
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            for name, value in zip(message["names"], values, strict=True):
                _COPY(value, own[name])
        self.device.finish()
        return {}

    def set_state(self, message: dict[str, Any], region: int) -> dict[str, Any]:
        """Overwrites the model's parameters and buffers with the judge's: the tensors that it had when it was
        constructed, so that no code of the program runs."""
        specs = message["specs"]
        values = nesting.views(specs, self.device.map(region, message["bytes"]))
        own = self.state
        # A tensor of another class could notice the copy, and compute ahead all that depends on the weights alone.
        if strange := [name for name in message["names"] if not any(type(own[name]) is plain for plain in _PLAIN)]:
            raise TypeError(f"{strange[0]} in the state is a {type(own[strange[0]]).__name__}, not a tensor")
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            for name, value in zip(message["names"], values, strict=True):
                _COPY(*nesting.without_repeats(own[name], value))
        self.device.finish()
        return {}

    def bind_inputs(self, message: dict[str, Any], example: int, region: int) -> dict[str, Any]:
        """Maps the judge's input slots: one set of inputs a slot, at fixed addresses."""
        with os.fdopen(example, "rb") as file:
            values = torch.load(io.BytesIO(file.read()), weights_only=False)
        memory = self.device.map(region, message["bytes"] * message["slots"])
        self.inputs = []
        for slot in range(message["slots"]):
            part = memory[slot * message["bytes"] : (slot + 1) * message["bytes"]]
            self.inputs.append(tuple(nesting.unflatten(values, nesting.views(message["specs"], part))))
        return {}

    def bind_outputs(self, message: dict[str, Any], *regions: int) -> dict[str, Any]:
        """Learns the form that an output must have, and maps the judge's output slots, if there are any."""
        self.output_spec = message["spec"]
        if self.gate is not None:
            self.gate.bind(message["spec"])
        if not regions:
            return {}
        (region,) = regions
        specs = nesting.tensor_specs(message["spec"])
        memory = self.device.map(region, message["bytes"] * message["slots"])
        size = message["bytes"]
        self.outputs = [
            nesting.views(specs, memory[slot * size : (slot + 1) * size]) for slot in range(message["slots"])
        ]
        return {}

    def bind_gate(self, message: dict[str, Any], words: int, region: int) -> dict[str, Any]:
        """Maps a gate of the judge, and memory for the outputs behind it."""
        from evaluators.runner.gate import Gate

        mapped = self.device.map(words, message["words"]), self.device.map(region, message["bytes"])
        self.gate = Gate(*mapped, message["spare"], bytes.fromhex(message["awake"]))
        assert self.output_spec is not None
        self.gate.bind(self.output_spec)
        return {}

    def serve_bursts(self) -> dict[str, Any] | None:
        """Serves bursts of calls, and replies to them, until another request comes. Returns the reply to a burst with
        an output of another form than the expected one."""
        if self._serve_bursts is None or self.arena is None:
            return None
        device = self.device
        with torch.no_grad():
            strange = self._serve_bursts(
                self.channel.fileno(),
                self.model,
                self.inputs,
                self.arena.forget,
                device.enforce_flags,
                device.seed,
                self._places,
            )
        return None if strange is None else {"mismatch": nesting.flatten(strange[0])[0]}

    def _places(self, output: Any) -> list[int] | None:
        """Where the output of a call lies; None if it has another form than the expected one."""
        assert self.arena is not None
        assert self.output_spec is not None
        tensors = nesting.tensors_of_form(self.output_spec, output)
        return None if tensors is None else self.arena.places(tensors)

    def call(self, message: dict[str, Any]) -> dict[str, Any]:
        """Calls the model once per seed, from the slot `first` on, and copies the outputs to the judge's memory;
        reports the seconds of each call by its clock. For devices without a loop in C++."""
        seconds, spec, first = [], self.output_spec, message["first"]
        assert spec is not None
        if self.gate is not None:
            self.gate.forget()
        if len(message["seeds"]) > 1:
            self.device.tidy()
        with torch.no_grad():
            for slot, seed in enumerate(message["seeds"]):
                self.device.seed(seed)
                self.device.enforce_flags()
                inputs = self.inputs[first + slot]
                is_alone = len(message["seeds"]) == 1 and not message["as_in_burst"]
                output, taken = self.device.timed(self.model, inputs, place=slot, is_alone=is_alone)
                seconds.append(taken)
                tensors = nesting.tensors_of_form(spec, output)
                if tensors is None:
                    return {"mismatch": nesting.flatten(output)[0]}
                for target, tensor in zip(self.outputs[slot], tensors, strict=True):
                    _refuse_same_memory(target, tensor)
                    target.copy_(tensor)
        self.device.finish()
        return {"seconds": seconds}

    def call_gated(self, message: dict[str, Any]) -> dict[str, Any]:
        """Has the device call the model on one slot as soon as the judge's gate opens, and does not wait for it.
        Reports where the outputs will lie."""
        gate, channel = self.gate, self.channel
        assert gate is not None
        with torch.no_grad():
            self.device.seed(message["seed"])
            self.device.enforce_flags()
            self.tracer = self.device.tracer() if message["traced"] else None
            inputs = self.inputs[message["slot"]]
            output, places = gate.call(self.model, inputs, message, lambda: channel.send_body(READY), self.tracer)
        return {"mismatch": nesting.flatten(output)[0]} if places is None else {"places": places}

    def trace(self, message: dict[str, Any]) -> dict[str, Any]:
        """Reports the kernels of the last call behind a gate."""
        self.device.finish()
        return {"kernels": None if self.tracer is None else self.tracer.records()}

    def integrity(self, message: dict[str, Any]) -> dict[str, Any]:
        """Reports which of the functions by which programs are measured this program has replaced, and the numeric
        flags as its last call left them."""
        return {"names": self.originals.replaced(), "flags": self.device.flags()}

    def discover(self, message: dict[str, Any], arguments: int) -> dict[str, Any]:
        """Imports, constructs and calls the program, without memory or a GPU, for the extensions that it asks for and
        for the form of its output, if one is expected. `arguments` holds the constructor's and, if they are known, the
        call's."""
        with os.fdopen(arguments, "rb") as file:
            init_inputs, inputs = torch.load(io.BytesIO(file.read()), weights_only=False)
        with rehearsing(message["capability"], message["arch"]):
            reply = self.load(message)
            if reply:
                return reply
            assert self.kind is not None
            model = self.kind(*init_inputs)
            output = None if inputs is None else model(*inputs)
        expected = message["spec"]
        if expected is None or nesting.tensors_of_form(expected, output) is not None:
            return {}
        return {"mismatch": nesting.flatten(output)[0]}

    def compile(self, message: dict[str, Any]) -> dict[str, Any]:
        """Compiles an extension, in a process of a build farm, which never holds a program."""
        from evaluators.runner.compiling import compile_as_asked

        return compile_as_asked(message)


def _refuse_same_memory(target: Tensor, output: Tensor) -> None:
    """Raises ValueError for an output that already lies at the place to copy it to. Both sides pay for this copy, and
    such an output would not."""
    with torch._C.DisableTorchFunctionSubclass():
        if _ADDRESS(target) == _ADDRESS(output) and target.numel():
            raise ValueError("the output lies in the evaluator's own memory")


def _explain(error: BaseException) -> str:
    """The exception, and the lines of the candidate that it passed through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(_OWN_FILES)]
    where = "".join(f"\nline {frame.lineno}: {frame.line}" for frame in frames[-3:])
    return f"{type(error).__name__}: {error}"[:MAX_MESSAGE_CHARACTERS] + where[:MAX_MESSAGE_CHARACTERS]
