"""The judge's end of the pipe to the zygote, the process that forks runners.

Runs in the judge's process (trusted). No program ever runs in the zygote itself, so its replies are believed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluators.failures import InfraError
from evaluators.host.device import Device
from evaluators.shared.protocol import Channel, PeerClosed, PeerTimeout, ProtocolViolation

_ZYGOTE_START_SECONDS = 120.0
_ZYGOTE_REPLY_SECONDS = 30.0
_COMPILERS_SECONDS = 300.0


class ZygoteHandle:
    """One zygote process, restarted when it dies. Not thread-safe: one judge, one zygote."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self.starts = 0
        self._prepared = 0  # the count of starts when Inductor was prepared last

    def start(self) -> None:
        """Starts the zygote and waits until it has imported torch. Raises InfraError."""
        self.starts += 1
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
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        theirs.close()
        self._channel = Channel(ours)
        try:
            self._channel.receive(_ZYGOTE_START_SECONDS)
        except (PeerClosed, PeerTimeout, ProtocolViolation) as error:
            self._process.kill()
            _, stderr = self._process.communicate()
            raise InfraError(f"the zygote did not start: {stderr.decode(errors='replace')[-1000:]}") from error

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
            self.close()
            raise InfraError(f"the zygote stopped answering: {type(error).__name__}") from error

    def prepare_inductor(self) -> None:
        """Does Inductor's set-up once for all runners that are forked from now on, each of which would spend seconds on
        it (`evaluators.sandbox.zygote`). Raises InfraError."""
        if self._device.torch_device.type == "cpu" and (self._prepared != self.starts or not self.is_alive):
            message = {"op": "prepare_inductor", "folder": str(_own_folder("warpsmith-inductor"))}
            self.request(message, timeout=_COMPILERS_SECONDS)
            self._prepared = self.starts

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
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._process = None


def _own_folder(name: str) -> Path:
    """A folder for temporary files that outlives this process. Only processes of this user can write in it."""
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022:
        return folder
    return Path(tempfile.mkdtemp(prefix=f"{name}-"))
