"""How a pool says that something failed. Only records, so that a caller need not import Ray."""

from __future__ import annotations

from dataclasses import dataclass


class PoolExhausted(RuntimeError):
    """No actor of a pool could be kept alive."""


@dataclass(frozen=True)
class PoolFailure:
    """The result of an item that failed: the exception of its method, or the reason why no actor could finish it."""

    error: Exception
