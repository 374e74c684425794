"""A proxy whose connections can be cut, as a restarted port-forward does it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Self


class BreakingProxy:
    """Forwards TCP from a port of its own to `port` on this machine. Use as a context manager."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._refusing = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Breaks every connection."""
        broken, self._open = self._open, []
        for one in broken:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def wait_for_connection(self, seconds: float = 60.0) -> None:
        """Until somebody is connected again."""
        deadline = time.monotonic() + seconds
        while not self._open:
            assert time.monotonic() < deadline, f"nobody has connected within {seconds} s"
            time.sleep(0.1)

    @contextlib.contextmanager
    def unreachable(self) -> Iterator[None]:
        """Within this block every connection breaks as soon as it is made."""
        self._refusing = True
        self.cut()
        yield
        self._refusing = False

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._target))
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
