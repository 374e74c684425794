"""A way to a server that fails as networks and servers do: refused, cut in the middle, or silent."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress

PASS, REFUSE, CUT, HANG = "pass", "refuse", "cut", "hang"
_CHUNK = 1 << 16
_LOOKS_EVERY = 0.2


class Proxy:
    """Forwards connections to a port of this machine. `mode` may change at any time, also for open connections.

    `refuse`: connections are reset at once. `cut`: they are reset after the first bytes of the answer. `hang`: nothing
    more is forwarded.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.mode = PASS
        self.hit = 0  # connections that a fault has met
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Takes no further connection."""
        self._closed = True
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.mode == REFUSE:
                self._reset(client)
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """One connection, until both sides have said all, or a fault ends it."""
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            self._reset(client)
            return
        answers = threading.Thread(target=self._forward, args=(server, client, True), daemon=True)
        answers.start()
        self._forward(client, server, False)
        answers.join()
        client.close()
        server.close()

    def _forward(self, source: socket.socket, target: socket.socket, are_answers: bool) -> None:
        source.settimeout(_LOOKS_EVERY)
        with suppress(OSError):
            while True:
                try:
                    part = source.recv(_CHUNK)
                except TimeoutError:
                    part = None
                if self.mode == REFUSE or (self.mode == CUT and are_answers and part):
                    if part:
                        target.sendall(part[: len(part) // 2])
                    self._reset(source)
                    self._reset(target)
                    return
                if part is None:
                    continue
                if self.mode == HANG:
                    self.hit += 1
                while self.mode == HANG and not self._closed:
                    time.sleep(_LOOKS_EVERY)
                if not part:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(part)

    def _reset(self, connection: socket.socket) -> None:
        """Closes a connection as a host does that has forgotten it."""
        self.hit += 1
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
