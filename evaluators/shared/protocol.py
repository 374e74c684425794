"""Messages between judge, zygote and runner: length-prefixed JSON over a Unix socket, with file descriptors beside it.

A message of a runner is data of an untrusted process. It is parsed as JSON, bounded in size, depth and time, and its
descriptors are not taken; it must never be unpickled. `evaluators.host.claims` checks its content.
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
_MAX_DEPTH = 64
_SEND_SECONDS = 60.0
_HEADER = struct.Struct("<I")


class PeerClosed(Exception):
    """The other end is closed: its process ended, or closed the descriptor."""


class PeerTimeout(Exception):
    """No complete message came in time, or the other end did not read one in time."""


class ProtocolViolation(Exception):
    """Data that is no valid message: too long, too deep, unasked for, not JSON, or not the answer to its request."""


class Channel:
    """One end of a socket pair. `trusted`: whether the other end is; if not, the kernel discards its descriptors."""

    def __init__(self, end: socket.socket, *, trusted: bool = True) -> None:
        self.socket = end
        self.trusted = trusted

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Sends one message. Raises PeerClosed if the other end is gone, PeerTimeout if it does not read."""
        body = json.dumps(message).encode()
        data = _HEADER.pack(len(body)) + body
        self.socket.settimeout(_SEND_SECONDS)
        try:
            if descriptors:
                sent = socket.send_fds(self.socket, [data], list(descriptors))
                data = data[sent:]
            if data:
                self.socket.sendall(data)
        except TimeoutError:
            raise PeerTimeout from None
        except OSError as error:
            raise PeerClosed(str(error)) from error
        finally:
            self.socket.settimeout(None)

    def expect_silence(self) -> None:
        """Raises ProtocolViolation if data came that nobody asked for, PeerClosed if the other end is gone."""
        if self._readable(0.0):
            try:
                unasked = self.socket.recv(1, socket.MSG_PEEK)
            except OSError as error:
                raise PeerClosed(str(error)) from error
            if unasked:
                raise ProtocolViolation("an answer that nobody asked for")
            raise PeerClosed("end of stream")

    def _readable(self, seconds: float) -> bool:
        poll = select.poll()  # select() fails on descriptors above 1023
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], list[int]]:
        """The next message and the descriptors that came with it. Waits at most `timeout` seconds for all of it (None:
        without end). Raises PeerTimeout, PeerClosed and ProtocolViolation."""
        deadline = None if timeout is None else time.monotonic() + timeout
        descriptors: list[int] = []
        header = self._read(_HEADER.size, deadline, descriptors)
        (length,) = _HEADER.unpack(header)
        if length > MAX_MESSAGE:
            raise ProtocolViolation(f"message of {length} bytes, at most {MAX_MESSAGE} allowed")
        body = self._read(length, deadline, descriptors)
        try:
            # Not msgspec: runners do without it, and it refuses half a surrogate pair, which an honest error may hold.
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ProtocolViolation(f"not JSON: {error}") from error
        if not isinstance(message, dict):
            raise ProtocolViolation("not a JSON object")
        if not self.trusted and _is_deeper(message, _MAX_DEPTH):
            raise ProtocolViolation(f"nested more than {_MAX_DEPTH} deep")
        return message, descriptors

    def _read(self, length: int, deadline: float | None, descriptors: list[int]) -> bytes:
        parts: list[bytes] = []
        missing = length
        while missing:
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0 or not self._readable(left):
                    raise PeerTimeout
            try:
                if self.trusted:
                    data, received, _, _ = socket.recv_fds(self.socket, missing, 16)
                    descriptors.extend(received)
                else:
                    data = self.socket.recv(missing)
            except OSError as error:
                raise PeerClosed(str(error)) from error
            if not data:
                raise PeerClosed("end of stream")
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def close(self) -> None:
        self.socket.close()


def _is_deeper(value: Any, limit: int) -> bool:
    """Whether parsed JSON nests deeper than `limit`. Without recursion, since a runner chooses the depth."""
    level = [value]
    for _ in range(limit):
        level = [
            part
            for container in level
            if isinstance(container, dict | list)
            for part in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return False
    return True
