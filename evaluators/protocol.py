"""Messages between judge, zygote and runner: length-prefixed JSON over a Unix socket, file descriptors beside it.

What comes from a runner is data of an untrusted process: it is parsed as JSON, bounded in size, and never unpickled.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

MAX_MESSAGE = 4 << 20
_HEADER = struct.Struct("<I")


class PeerClosed(Exception):
    """The other end closed its socket: its process ended, or it closed the descriptor."""


class PeerTimeout(Exception):
    """No complete message came in time."""


class ProtocolViolation(Exception):
    """What came is not a message: too long, or not JSON."""


class Channel:
    """One end of a socket pair."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Sends one message. Raises PeerClosed when nobody reads."""
        body = json.dumps(message).encode()
        data = _HEADER.pack(len(body)) + body
        try:
            if descriptors:
                sent = socket.send_fds(self.socket, [data], list(descriptors))
                data = data[sent:]
            if data:
                self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError, OSError) as error:
            raise PeerClosed(str(error)) from error

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], list[int]]:
        """The next message and the descriptors that came with it, waiting at most `timeout` seconds for all of it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        descriptors: list[int] = []
        header = self._read(_HEADER.size, deadline, descriptors)
        (length,) = _HEADER.unpack(header)
        if length > MAX_MESSAGE:
            raise ProtocolViolation(f"message of {length} bytes, at most {MAX_MESSAGE} allowed")
        body = self._read(length, deadline, descriptors)
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ProtocolViolation(f"not JSON: {error}") from error
        if not isinstance(message, dict):
            raise ProtocolViolation("not a JSON object")
        return message, descriptors

    def _read(self, length: int, deadline: float | None, descriptors: list[int]) -> bytes:
        parts: list[bytes] = []
        missing = length
        while missing:
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                    raise PeerTimeout
            try:
                data, received, _, _ = socket.recv_fds(self.socket, missing, 16)
            except OSError as error:
                raise PeerClosed(str(error)) from error
            descriptors.extend(received)
            if not data:
                raise PeerClosed("end of stream")
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def close(self) -> None:
        self.socket.close()
