"""Ports for servers that tests start."""

from __future__ import annotations

import contextlib
import socket


def free_ports(number: int) -> list[int]:
    """Different ones that nobody listens at: another process may still take one first."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]
