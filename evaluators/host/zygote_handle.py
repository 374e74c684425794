"""The judge's end of the pipe to the zygote, the process that forks runners.

Runs in the judge's process (trusted). No program ever runs in the zygote itself, so its replies are believed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from evaluators.failures import InfraError
from evaluators.host.device import Device
from evaluators.host.folders import own_folder, remove_left_folders
from evaluators.shared.protocol import Channel, PeerClosed, PeerTimeout, ProtocolViolation

_ZYGOTE_START_SECONDS = 120.0
_ZYGOTE_REPLY_SECONDS = 30.0
_COMPILERS_SECONDS = 300.0
_PRINTED_BYTES = 1000  # in messages


class ZygoteHandle:
    """One zygote process, restarted when it dies. Not thread-safe: one judge, one zygote.

    `required`: the containment without which no runner of it may load a program (`evaluators.host.containment`).
    `preparations`: how often it was prepared for the runners that are forked afterwards.
    """

    def __init__(self, device: Device, required: Sequence[str] = ()) -> None:
        self._device = device
        self.required = tuple(required)
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._printed: IO[bytes] | None = None  # a file, since nobody would drain a pipe while the zygote runs
        self.starts = self.preparations = 0
        self._prepared: dict[str, int] = {}  # for each operation, the count of starts when it was prepared last

    def start(self) -> None:
        """Starts the zygote and waits until it has imported torch. Raises InfraError."""
        self.starts += 1
        remove_left_folders()
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the zygote)
        ours, theirs = socket.socketpair()
        root = Path(__file__).resolve().parents[2]
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "PYTHONPATH": os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "LANG": "C.UTF-8",
            "HOME": tempfile.gettempdir(),
            **({"LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"]} if "LD_LIBRARY_PATH" in os.environ else {}),
            **self._device.environment(),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "evaluators.sandbox.zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            cwd=tempfile.gettempdir(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._printed,
            start_new_session=True,
        )
        theirs.close()
        self._channel = Channel(ours)
        try:
            self._channel.receive(_ZYGOTE_START_SECONDS)
        except (PeerClosed, PeerTimeout, ProtocolViolation) as error:
            self._process.kill()
            self._process.wait()
            raise InfraError(f"the zygote did not start: {self._last_output()}") from error

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def request(
        self, message: dict[str, Any], descriptors: Sequence[int] = (), *, timeout: float = _ZYGOTE_REPLY_SECONDS
    ) -> dict[str, Any]:
        """Sends a request and returns the reply; starts the zygote if it does not run. `timeout`: seconds. Raises
        InfraError if it dies meanwhile."""
        if not self.is_alive:
            self.close()
            self.start()
        assert self._channel is not None
        try:
            self._channel.send(message, descriptors)
            return self._channel.receive(timeout)[0]
        except (PeerClosed, PeerTimeout, ProtocolViolation) as error:
            printed = self._last_output()
            self.close()
            raise InfraError(f"the zygote stopped answering: {type(error).__name__} {printed}".strip()) from error

    def prepare_inductor(self) -> None:
        """Imports and sets up Inductor once for all runners that are forked from now on, each of which would spend
        seconds on it (`evaluators.sandbox.zygote`). Raises InfraError."""
        on_cpu = self._device.torch_device.type == "cpu"
        self._prepare("prepare_inductor", folder=str(own_folder("warpsmith-inductor")) if on_cpu else "")

    def prepare_forms(self) -> None:
        """Imports what calls without values need (torch's `meta` device) for all runners that are forked from now on,
        each of which would spend a second on it. Raises InfraError."""
        self._prepare("prepare_forms")

    def _prepare(self, operation: str, **message: str) -> None:
        if self._prepared.get(operation) != self.starts or not self.is_alive:
            self.request({"op": operation, **message}, timeout=_COMPILERS_SECONDS)
            self._prepared[operation] = self.starts
            self.preparations += 1

    def close(self) -> None:
        """Ends the zygote and every runner it forked."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._printed is not None:
            self._printed.close()
            self._printed = None

    def _last_output(self) -> str:
        """The last that the zygote printed."""
        if self._printed is None:
            return ""
        self._printed.seek(max(0, os.fstat(self._printed.fileno()).st_size - _PRINTED_BYTES))
        return self._printed.read(_PRINTED_BYTES).decode(errors="replace").strip()
