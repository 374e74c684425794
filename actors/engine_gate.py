"""Who may run in a rollout engine: requests while its gate is open, a change of weights or a sleep while it is shut.

Counts what runs and for how long. Knows nothing of vLLM; lives in one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator


class EngineGate:
    """Open at first. Requests that come while it is shut wait until it opens; those that run are waited for."""

    def __init__(self) -> None:
        self.running = 0
        self._busy_since = self._busy_seconds = 0.0
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_open(self) -> bool:
        """Whether requests may run."""
        return self._open.is_set()

    @property
    def busy_seconds(self) -> float:
        """Seconds with at least one request running."""
        return self._busy_seconds + (time.monotonic() - self._busy_since if self.running else 0.0)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """A running request; waits while the gate is shut."""
        while not self._open.is_set():
            await self._open.wait()
        if not self.running:
            self._busy_since = time.monotonic()
            self._idle.clear()
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            if not self.running:
                self._busy_seconds += time.monotonic() - self._busy_since
                self._idle.set()

    async def shut(self, timeout: float) -> None:
        """Lets no further request in, and waits until those that run have ended. Raises TimeoutError after `timeout`
        seconds; the gate then is open again."""
        self._open.clear()
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except BaseException:
            self._open.set()
            raise

    def open(self) -> None:
        """Lets those in who wait."""
        self._open.set()
