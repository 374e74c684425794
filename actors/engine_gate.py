"""Who may run in a rollout engine: requests while its gate is open, a change of weights or a sleep while it is shut.

Knows nothing of vLLM. Belongs to one event loop, and must not be used from another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class EngineGate:
    """Open at first. Requests that come while it is shut wait until it opens; running requests are waited for."""

    def __init__(self) -> None:
        self.running = 0
        self._purpose = ""  # what it was shut for last
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_open(self) -> bool:
        """Whether requests may run."""
        return self._open.is_set()

    @property
    def state(self) -> str:
        """What whoever waits here waits for."""
        return f"{self.running} requests run" if self.is_open else f"the engine's gate is shut for {self._purpose}"

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """A running request; waits while the gate is shut."""
        while not self._open.is_set():
            await self._open.wait()
        self._idle.clear()
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            if not self.running:
                self._idle.set()

    async def shut(self, timeout: float, purpose: str) -> None:
        """Lets no further request in, and waits until the running ones have ended. `purpose` is for messages.

        Raises TimeoutError after `timeout` seconds; the gate is then open again.
        """
        self._open.clear()
        self._purpose = purpose
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except BaseException:
            self._open.set()
            raise

    def open(self) -> None:
        """Lets the waiting requests in."""
        self._open.set()


@contextlib.asynccontextmanager
async def within(seconds: float, what: str, gate: EngineGate) -> AsyncIterator[None]:
    """Bounds a block. Raises a TimeoutError that says `what` took too long, and what the gate's callers wait for."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise TimeoutError(f"{what} took longer than {seconds:g} s: {gate.state}") from None
