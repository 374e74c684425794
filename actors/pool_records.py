"""What a pool of actors keeps of its members and their work, and how it says that something came to nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any


class PoolExhausted(RuntimeError):
    """No actor of a pool could be kept alive."""


@dataclass(frozen=True)
class PoolFailure:
    """An item that came to nothing: what its method raised, or why it could not be run to its end."""

    item: Any
    error: Exception


@dataclass
class Work:
    """An item on its way, and the actor that has it."""

    item: Any
    method: str
    priority: int = 0
    failures: int = 0
    actor: int | None = None
    deadline: float = 0.0
    affinity: Hashable = None


@dataclass
class Broadcast:
    """A call to all ready actors of a pool: answers by actor, and those that have given none."""

    method: str
    deadline: float
    missing: set[int]
    results: list[Any] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return not self.missing


@dataclass
class Member:
    """One place in the pool and the actor in it. `ping` is under way until the actor is known to be ready."""

    index: int
    ping: Any = None
    deadline: float = 0.0
    is_new: bool = True  # starting, rather than being asked whether it still lives
    needs_hook: bool = False
    failed_starts: int = 0
    work: set[int] = field(default_factory=set)
    affinities: Counter[Hashable] = field(default_factory=Counter)  # of its work
    busy_since: float = 0.0

    @property
    def is_ready(self) -> bool:
        return self.ping is None
