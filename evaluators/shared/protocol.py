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
READY = b"\x02"
"""A message before the answer: the runner waits for nothing but the judge's gate. No JSON begins with it."""

_MAX_DEPTH = 64
_MAX_PARTS = 200_000  # lists and objects of a message: a second of the parser's work at most
_SEND_SECONDS = 60.0
_CHUNK = 64 << 10  # bytes read at once where no descriptors come along: most messages come whole
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
        self._received = bytearray()  # what came and was not returned yet

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Sends one message. Raises PeerClosed if the other end is gone, PeerTimeout if it does not read."""
        self.send_body(self.body_of(message), descriptors)

    @staticmethod
    def body_of(message: dict[str, Any]) -> bytes:
        """A message as `send_body` takes it."""
        return json.dumps(message).encode()

    def send_body(self, body: bytes, descriptors: Sequence[int] = ()) -> None:
        """Sends one message. Raises what `send` raises."""
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
        if self._received:
            raise ProtocolViolation("an answer that nobody asked for")
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
        body, descriptors = self.receive_body(timeout)
        return self.parse(body), descriptors

    def receive_body(self, timeout: float | None = None) -> tuple[bytes, list[int]]:
        """The next message as it came, for `parse`, and its descriptors. Raises what `receive` raises."""
        deadline = None if timeout is None else time.monotonic() + timeout
        descriptors: list[int] = []
        while (end := self._end_of_message()) > len(self._received):
            self._read(end - len(self._received), deadline, descriptors)
        body = bytes(self._received[_HEADER.size : end])
        del self._received[:end]
        return body, descriptors

    def parse(self, body: bytes) -> dict[str, Any]:
        """The message that a body holds. Raises ProtocolViolation."""
        if not self.trusted and body.count(b"[") + body.count(b"{") > _MAX_PARTS:
            raise ProtocolViolation(f"more than {_MAX_PARTS} parts")
        try:
            # Not msgspec: runners do without it, and it refuses half a surrogate pair, which an honest error may hold.
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ProtocolViolation(f"not JSON: {error}") from error
        if not isinstance(message, dict):
            raise ProtocolViolation("not a JSON object")
        if not self.trusted and _is_deeper(message, _MAX_DEPTH):
            raise ProtocolViolation(f"nested more than {_MAX_DEPTH} deep")
        return message

    def _end_of_message(self) -> int:
        """Where the first message ends in what was received, in bytes; the end of its header before that is known."""
        if len(self._received) < _HEADER.size:
            return _HEADER.size
        (length,) = _HEADER.unpack_from(self._received)
        if length > MAX_MESSAGE:
            raise ProtocolViolation(f"message of {length} bytes, at most {MAX_MESSAGE} allowed")
        return _HEADER.size + int(length)

    def _read(self, missing: int, deadline: float | None, descriptors: list[int]) -> None:
        """Waits for further data and keeps it. No more than one message is read where descriptors belong to it."""
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not self._readable(left):
                raise PeerTimeout
        try:
            if self.trusted:
                data, received, _, _ = socket.recv_fds(self.socket, missing, 16)
                descriptors.extend(received)
            else:
                data = self.socket.recv(max(missing, _CHUNK))
        except OSError as error:
            raise PeerClosed(str(error)) from error
        if not data:
            raise PeerClosed("end of stream")
        self._received += data

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
