"""The judge's end of the pipe to one runner.

Whatever goes wrong on the other side ends in a `RunnerFailure` with an outcome; our own failures are `InfraError`.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from evaluators.failures import InfraError, RunnerFailure
from evaluators.host.census import Census
from evaluators.host.device import Device, Slot
from evaluators.host.locks import shared_folder
from evaluators.host.process_group import ProcessGroup
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.records import Outcome
from evaluators.sandbox import Containment, hide_memory
from evaluators.sandbox.process_counts import cpu_seconds_of, scheduled
from evaluators.shared import nesting
from evaluators.shared.extension import ExtensionRequest
from evaluators.shared.kernel_record import KernelRecord
from evaluators.shared.protocol import Channel, PeerClosed, PeerTimeout, ProtocolViolation
from evaluators.shared.region import Region

_log = logging.getLogger(__name__)
_FIRST_USER = 61000
_OF_A_RUN = re.compile("(CUDA|cuDNN) error:")
_COMPILER_WORDS = ("Error building extension", "CppCompileError", "ninja", "error: ", "compiler")
_FILES_SECONDS = 60.0
# Solutions of tasks, and of how evaluators are cheated, are not for candidates.
_HIDDEN = tuple(str(Path(__file__).parents[1] / name) for name in ("tasks/bundled", "gauntlet"))
_MOST_EXTENSIONS = 64
_ERROR_CHARACTERS = 10000
_NAME_CHARACTERS = 100  # of what a runner claims was replaced
_MOST_NAMES = 1000
_MOST_TENSORS = 100_000  # of a model's state
_STATUS_NAMES = {signal.SIGXCPU: "used up its CPU time", signal.SIGSEGV: "crashed with a segmentation fault"}


@dataclass(frozen=True)
class RunnerLimits:
    """Limits of one runner; bytes, counts, seconds."""

    memory_bytes: int = 4 << 30
    device_memory_bytes: int = 48 << 30
    processes: int = 64
    file_bytes: int = 64 << 20
    cpu_seconds: int = 600


class RunnerHandle:
    """One runner: reference or candidate."""

    def __init__(
        self,
        zygote: ZygoteHandle,
        device: Device,
        slot: Slot,
        side: int,
        limits: RunnerLimits,
        environment: Mapping[str, str] | None = None,
        writable: Sequence[Path] = (),
        extensions: Callable[[ExtensionRequest], dict[str, Any]] | None = None,
    ) -> None:
        """Forks the runner. `side` (0 or 1) keeps the two users of a slot apart. It may write in its own folder and in
        the `writable` ones; `extensions` answers a candidate that asks for one (None: there are none)."""
        self._zygote = zygote
        self._folder = Path(tempfile.mkdtemp(prefix="warpsmith-runner-"))
        self.active: tuple[str, ...] = ()
        user = _FIRST_USER + 2 * slot.index + side
        for folder in (self._folder, *writable):
            give_to(folder, user)
        containment = Containment(
            limits.memory_bytes,
            limits.processes,
            limits.file_bytes,
            limits.cpu_seconds,
            user,
            str(self._folder),
            slot.cores,
            (*_HIDDEN, str(shared_folder())),  # locks, too, that a program could hold
            tuple(map(str, writable)),
            device.own_memory,
        )
        home = str(self._folder)
        variables = {"HOME": home, "TMPDIR": home, "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor"}
        variables |= {"TORCH_EXTENSIONS_DIR": f"{home}/extensions", "TRITON_CACHE_DIR": f"{home}/triton"}
        variables |= {"USER": "candidate", **(environment or {})}
        ours, theirs = socket.socketpair()
        try:
            reply = zygote.request(
                {
                    "op": "fork",
                    "containment": asdict(containment),
                    "environment": variables,
                    "device": device.runner_options(limits.device_memory_bytes),
                },
                [theirs.fileno()],
            )
            self.pid = int(reply["pid"])
            if not self.pid:
                raise InfraError("the zygote could not fork a runner")
        except InfraError:
            ours.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        finally:
            theirs.close()
        self._zygote_start = zygote.starts
        self._group = ProcessGroup(self.pid)
        self._left = 0  # processes of it that could not be ended
        self._channel = Channel(ours, trusted=False)
        self._device = device
        self._closed = False
        self._extensions = extensions
        self.libraries: set[Path] = set()  # that it was told to load
        self.seconds = 0.0  # that the last request took
        self.waited = 0.0  # seconds of the last calls for which its threads waited for a core

    def ask(self, message: dict[str, Any], timeout: float, descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """Sends one request and returns the reply. Raises RunnerFailure for whatever else happens.

        The runner runs from the request to its reply and at no other time: it cannot work ahead on inputs that it has
        not been called with, finish after it has answered, or slow the other side down.
        """
        try:
            self._channel.expect_silence()
            start = time.perf_counter()
            self._group.resume()
            self._channel.send(message, descriptors)
            reply = self._reply(timeout)
            self.seconds = time.perf_counter() - start
        except PeerTimeout:
            raise RunnerFailure(Outcome.TIMEOUT, f"no answer within {timeout:.1f} s") from None
        except (PeerClosed, ProtocolViolation) as error:
            raise RunnerFailure(Outcome.RUNTIME_ERROR, self._post_mortem(error)) from None
        finally:
            self._group.stop()
        if "error" in reply:
            raise _failure_of(reply, message["op"])
        return reply

    def _reply(self, timeout: float) -> dict[str, Any]:
        """The reply to a request. Meanwhile the candidate may ask for extensions; the time that takes is not its own.

        Raises Unbuilt besides what the channel does."""
        deadline = time.monotonic() + timeout
        for _ in range(_MOST_EXTENSIONS):
            reply, _ = self._channel.receive(max(0.0, deadline - time.monotonic()))
            if "extension" not in reply:
                return reply
            start = time.monotonic()
            self._group.stop()
            answer = self._answer(reply["extension"])
            self._group.resume()
            self._channel.send(answer)
            deadline += time.monotonic() - start
        raise ProtocolViolation(f"more than {_MOST_EXTENSIONS} extensions")

    def _answer(self, wanted: Any) -> dict[str, Any]:
        try:
            request = ExtensionRequest.from_json(wanted)
        except ValueError as error:
            return {"error": str(error)}
        if self._extensions is None:
            return {"error": "no extensions are built for this program"}
        answer = self._extensions(request)
        if "library" in answer and len(self.libraries) < _MOST_EXTENSIONS:
            self.libraries.add(Path(answer["library"]))
        return answer

    def _post_mortem(self, error: Exception) -> str:
        """Why a runner went silent: how its process ended and the last it printed."""
        if isinstance(error, ProtocolViolation):
            return f"the program wrote to the judge's pipe ({error})"
        time.sleep(0.05)  # a dying process closes its socket a moment before it can be waited for
        try:
            status = self._reap()
        except InfraError:
            status = None
        if self._zygote.starts != self._zygote_start or not self._zygote.is_alive:
            if "pid_namespace" in self.active:  # out of the program's reach, so not its doing
                raise InfraError("the zygote died")
            return "the program ended the process that had started it"
        if status is None:
            return "the program closed the judge's pipe"
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            known = next((text for key, text in _STATUS_NAMES.items() if key == number), None)
            ended = f"the process {known or f'was ended by signal {number}'}"
        else:
            ended = f"the process ended with exit code {os.WEXITSTATUS(status)}"
        printed = self.printed(500)
        return f"{ended}: {printed}" if printed else ended

    def printed(self, limit: int) -> str:
        """The end of what the program printed, at most `limit` bytes of it."""
        # The program may have put a link or a pipe in its place, where the host does not let us hide the file from it.
        with contextlib.suppress(OSError):
            descriptor = os.open(self._folder / "output.txt", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb") as file:
                about = os.fstat(descriptor)
                if stat.S_ISREG(about.st_mode):
                    file.seek(max(0, about.st_size - limit))
                    return file.read(limit).decode(errors="replace").strip()
        return ""

    def begin_start(self) -> None:
        """Lets the runner take hold of the device, before any line of the program has run; `end_start` waits for it.
        Runners may start at the same time, since nothing is measured meanwhile."""
        self._group.resume()
        with contextlib.suppress(PeerClosed):  # `end_start` says why
            self._channel.send({"op": "start"})

    def end_start(self, timeout: float) -> None:
        """Waits until the runner has started. Raises InfraError."""
        try:
            reply, _ = self._channel.receive(timeout)
        except PeerTimeout as error:
            raise InfraError(f"the runner did not start within {timeout:.0f} s: {self.printed(500)}") from error
        except (PeerClosed, ProtocolViolation) as error:
            raise InfraError(f"the runner did not start: {self._post_mortem(error)}") from error
        finally:
            self._group.stop()
        if "error" in reply:
            raise InfraError(f"the runner did not start: {reply.get('message')}")
        self.active = tuple(reply["active"])
        self._group.holds_all = "seccomp" in self.active
        if not {"landlock", "own_user", "pid_namespace"}.intersection(self.active):
            hide_memory()  # ours, which nothing else keeps it from reading

    def load(self, source: str, entry: str, timeout: float) -> None:
        """Imports the program, which must define `entry`."""
        self.ask({"op": "load", "source": source, "entry": entry}, timeout)

    def discover(
        self,
        source: str,
        arguments: tuple[list[Any], list[Any] | None],
        capability: str,
        arch: str,
        timeout: float,
    ) -> None:
        """Imports, constructs and calls the program for the extensions that it asks for alone. `arguments` are the
        constructor's and, on the `meta` device, a call's, if known; `capability` is of the GPU that it is to believe
        in, empty for none."""
        message = {"op": "discover", "source": source, "entry": "ModelNew", "capability": capability, "arch": arch}
        with _saved(arguments) as descriptor:
            self.ask(message, timeout, [descriptor])

    def construct(
        self, seed: int, init_inputs: list[Any], timeout: float, *, on_host: bool = False, final: bool = True
    ) -> tuple[list[list[Any]], dict[str, str]]:
        """Constructs the model under a seed; returns names, dtypes and shapes of its state, and the global numeric
        flags as the program left them. One that is not `final` is replaced before anything is measured of it."""
        with _saved(init_inputs) as descriptor:
            reply = self.ask(
                {"op": "construct", "seed": seed, "on_host": on_host, "final": final}, timeout, [descriptor]
            )
        state, flags = reply.get("state"), reply.get("flags")
        known = {str(key): str(value) for key, value in flags.items()} if isinstance(flags, dict) else {}
        if not isinstance(state, list) or len(state) > _MOST_TENSORS or not all(map(nesting.is_form, state)):
            violation = ProtocolViolation("its state is not described as a state is")
            raise RunnerFailure(Outcome.RUNTIME_ERROR, self._post_mortem(violation))
        return state, known

    def call(self, seeds: list[int], timeout: float) -> tuple[list[float], nesting.Spec | None]:
        """Calls the model once a seed, on slot 0, 1, ...: the seconds that it claims, or the form of an output that is
        not what was expected. Both are claims of an untrusted process, but of these types."""
        before = scheduled(self.pid)[1]
        reply = self.ask({"op": "call", "seeds": seeds}, timeout)
        self.waited = max(0.0, scheduled(self.pid)[1] - before)
        seconds, mismatch = reply.get("seconds"), reply.get("mismatch")
        if isinstance(mismatch, dict):
            return [], mismatch
        if not isinstance(seconds, list) or len(seconds) != len(seeds) or not all(map(_is_duration, seconds)):
            raise RunnerFailure(Outcome.RUNTIME_ERROR, self._post_mortem(ProtocolViolation("not an answer to a call")))
        return [float(one) for one in seconds], None

    def get_state(self, forms: Sequence[Sequence[Any]], timeout: float) -> dict[str, torch.Tensor]:
        """The values of parameters and buffers, by their names, dtypes and shapes: as the program gives them."""
        specs = [nesting.plain_spec(dtype, shape) for _, dtype, shape in forms]
        region = self._device.allocate(nesting.layout(specs)[1])
        try:
            names = [name for name, _, _ in forms]
            message = {"op": "get_state", "names": names, "specs": specs, "bytes": region.size}
            self.ask(message, timeout, [region.descriptor])
            values = [one.clone() for one in nesting.views(specs, region.memory)]
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
            self.ask(message, timeout, [region.descriptor])
        finally:
            region.close()

    def bind_inputs(self, example: list[Any], region: Region, slots: int, timeout: float) -> None:
        """Shows the runner `slots` sets of input tensors like `example` in `region`."""
        specs = nesting.tensor_specs(nesting.flatten(example)[0])
        message = {"op": "bind_inputs", "specs": specs, "bytes": nesting.layout(specs)[1], "slots": slots}
        placeholders = nesting.unflatten(example, [torch.empty(0) for _ in specs])
        with _saved(placeholders) as descriptor:
            self.ask(message, timeout, [descriptor, region.descriptor])

    def bind_outputs(self, spec: nesting.Spec, region: Region, slots: int, timeout: float) -> None:
        """Shows the runner `slots` output buffers of the expected form in `region`."""
        size = nesting.layout(nesting.tensor_specs(spec))[1]
        message = {"op": "bind_outputs", "spec": spec, "bytes": size, "slots": slots}
        self.ask(message, timeout, [region.descriptor])

    def trace(self, timeout: float) -> list[KernelRecord] | None:
        """One call on slot 0: every kernel that ran, as claimed; None without a tracer."""
        kernels = self.ask({"op": "trace"}, timeout).get("kernels")
        if not isinstance(kernels, list):
            return None
        return [
            (str(name), stream, float(start), float(end))
            for name, stream, start, end in (one for one in kernels if isinstance(one, list) and len(one) == 4)
            if isinstance(stream, int) and _is_duration(start) and _is_duration(end) and start <= end
        ]

    def integrity(self, timeout: float) -> tuple[tuple[str, ...], dict[str, str]]:
        """The functions by which it measures that the program has replaced, and the global numeric flags as its last
        call left them: both as claimed."""
        reply = self.ask({"op": "integrity"}, timeout)
        names, flags = reply.get("names"), reply.get("flags")
        known = (
            {str(key): str(value)[:_NAME_CHARACTERS] for key, value in flags.items()} if isinstance(flags, dict) else {}
        )
        named = names[:_MOST_NAMES] if isinstance(names, list) else []
        return tuple(str(name)[:_NAME_CHARACTERS] for name in named), known

    def cpu_seconds(self) -> float:
        """CPU time of its threads so far, as the kernel counts it."""
        return scheduled(self.pid)[0]

    def census(self) -> Census:
        """Who is there beside its main thread, as the kernel says."""
        children = self._group.others()
        seconds = sum(map(cpu_seconds_of, children))
        with contextlib.suppress(OSError):
            return Census(len(os.listdir(f"/proc/{self.pid}/task")), len(children), seconds)
        return Census(0, len(children), seconds)

    def close(self) -> None:
        """Kills the runner with everything it started, and removes its folder. Never raises: the verdict stands."""
        if self._closed:
            return
        self._closed = True
        self._channel.close()
        self._group.kill()
        try:
            self._reap()
        except InfraError as error:
            _log.warning("runner %d: %s", self._group.leader, error)
        remove_folder(self._folder)

    def end(self) -> None:
        """Closes it. Raises InfraError where something that it started is still there."""
        self.close()
        if self._left:
            raise InfraError(f"{self._left} processes of the program could not be ended")

    def _reap(self) -> int | None:
        """Has the zygote end all that is left of it; how it had ended by itself, if it had. Raises InfraError."""
        if not self.pid:
            return None
        process, self.pid = self.pid, 0
        reply = self._zygote.request({"op": "reap", "pid": process})
        self._left = int(reply["left"])
        # A zygote that was started meanwhile knows nothing of it, and what is left of it is still to be killed.
        self._group.gone = self._zygote.starts == self._zygote_start and not self._left
        return None if reply["status"] is None else int(reply["status"])


def give_to(folder: Path, user: int) -> None:
    """Makes a folder (and what is in it) a runner's own, where we may: only root can give files away."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(folder, user, user)
        if any(folder.iterdir()):  # what another runner wrote, nested as deeply as it liked
            command = ["chown", "--recursive", "--no-dereference", "-P", f"{user}:{user}", str(folder)]
            subprocess.run(command, stderr=subprocess.DEVNULL, timeout=_FILES_SECONDS, check=False)


def remove_folder(folder: Path) -> None:
    """Removes a folder that a program wrote in: perhaps nested too deeply for shutil, or closed to its owner."""
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        for command in (["chmod", "--recursive", "u+rwx", str(folder)], ["rm", "-rf", str(folder)]):
            subprocess.run(command, stderr=subprocess.DEVNULL, timeout=_FILES_SECONDS, check=False)


def _is_duration(value: Any) -> bool:
    """Whether a stranger's number can be one: 0 to a million seconds, not NaN."""
    return isinstance(value, int | float) and 0 <= value <= 1e6


@contextlib.contextmanager
def _saved(value: Any):  # type: ignore[no-untyped-def]
    """A descriptor of a memory file with `value` in it, for the runner to load (the judge never loads the runner's)."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    descriptor = os.memfd_create("warpsmith-value")
    try:
        os.write(descriptor, buffer.getbuffer())
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _failure_of(reply: Mapping[str, Any], operation: str) -> RunnerFailure:
    kind, message = str(reply["error"])[:100], str(reply.get("message", ""))[:_ERROR_CHARACTERS]
    if kind in ("SyntaxError", "IndentationError", "TabError"):
        return RunnerFailure(Outcome.BUILD_ERROR, message, "parse")
    if kind == "NoEntry":
        return RunnerFailure(Outcome.BUILD_ERROR, message, "import")
    compiles = kind in ("RuntimeError", "CppCompileError", "InductorError") and not _OF_A_RUN.search(message)
    if compiles and any(word in message for word in _COMPILER_WORDS):
        return RunnerFailure(Outcome.BUILD_ERROR, message, "compile")
    return RunnerFailure(Outcome.RUNTIME_ERROR, message, operation)
