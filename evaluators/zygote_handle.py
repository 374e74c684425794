"""The judge's end of the pipe to the zygote that it forks runners from."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluators.device import Device
from evaluators.failures import InfraError
from evaluators.protocol import Channel, PeerClosed, PeerTimeout, ProtocolViolation

_ZYGOTE_START_SECONDS = 120.0
_ZYGOTE_REPLY_SECONDS = 30.0


class ZygoteHandle:
    """One zygote process, restarted when it dies. Not thread-safe: one judge, one zygote."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self.starts = 0

    def start(self) -> None:
        """Starts the zygote and waits until it has torch imported."""
        self.starts += 1
        ours, theirs = socket.socketpair()
        root = Path(__file__).resolve().parent.parent
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "PYTHONPATH": os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "LANG": "C.UTF-8",
            "HOME": tempfile.gettempdir(),
            **({"LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"]} if "LD_LIBRARY_PATH" in os.environ else {}),
            **self._device.environment(),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "evaluators.zygote", str(theirs.fileno())],
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

    def request(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """Asks the zygote, starting it when needed. Raises InfraError when it dies meanwhile."""
        if not self.is_alive:
            self.close()
            self.start()
        assert self._channel is not None
        try:
            self._channel.send(message, descriptors)
            return self._channel.receive(_ZYGOTE_REPLY_SECONDS)[0]
        except (PeerClosed, PeerTimeout, ProtocolViolation) as error:
            self.close()
            raise InfraError(f"the zygote stopped answering: {type(error).__name__}") from error

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
