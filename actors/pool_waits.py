"""Says who waits for whom while the work of a pool stands still."""

from __future__ import annotations

import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)
NOTICE_SECONDS = 60.0


class WaitNotices:
    """A line in the log whenever items of a pool have waited another minute, and no actor could work."""

    def __init__(self, name: str) -> None:
        """`name` is the pool's, for messages."""
        self._name = name
        self._since: float | None = None  # seconds of the monotonic clock
        self._told = 0.0

    def check(self, now: float, waiting: int, describe: Callable[[], str]) -> None:
        """To be called often. `waiting`: items that wait while no actor works or can, 0 if there is nothing to tell.
        `describe`: what the actors wait for."""
        if not waiting:
            self._since = None
            return
        if self._since is None:
            self._since = self._told = now
        if now - self._told >= NOTICE_SECONDS:
            self._told = now
            _log.warning(
                "pool %s: %d item(s) have waited %.0f s: %s", self._name, waiting, now - self._since, describe()
            )
