"""How a pool says that something failed, and who hears of its actors. Only records, so that a caller need not import
Ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class PoolExhausted(RuntimeError):
    """No actor of a pool could be kept alive."""


@dataclass(frozen=True)
class Loss:
    """A worker that was lost while it had an item.

    `reason`: what happened, in one line. `place`: the worker's in its pool. `worker`: its number there, which no other
    worker ever has. `node`, `process`: the id of its node and of its process there, empty and 0 if they are not known.
    `seconds`: how long it had the item. `at`: when it was noticed, in seconds of the monotonic clock; `time`: the same
    in seconds since 1970. `excuse`: why it is not the item's fault, empty if it may be.
    """

    reason: str
    place: int
    worker: int
    node: str
    process: int
    seconds: float
    at: float
    time: float
    excuse: str = ""

    def __str__(self) -> str:
        where = f" on node {self.node[:12]}" if self.node else ""
        excuse = f" (not its fault: {self.excuse})" if self.excuse else ""
        return f"worker {self.place}{where} after {self.seconds:.0f} s: {self.reason}{excuse}"


class ItemGivenUp(RuntimeError):
    """An item that lost too many workers. `losses`: all of them. `is_set_aside`: enough of them may be its fault."""

    def __init__(self, what: str, losses: Sequence[Loss], *, is_set_aside: bool) -> None:
        named = [loss for loss in losses if not loss.excuse] if is_set_aside else losses
        listed = "; ".join(f"({number}) {loss}" for number, loss in enumerate(named, start=1))
        super().__init__(f"{what} failed {len(named)} times, each time with its worker: {listed}")
        self.losses, self.is_set_aside = tuple(losses), is_set_aside


@dataclass(frozen=True)
class PoolFailure:
    """The result of an item that failed: the exception of its method, or the reason why no actor could finish it."""

    error: Exception


class ReadyHook(Protocol):
    """Hears whenever an actor may be given work from now on, or may not any more."""

    def __call__(self, actor: int, *, is_ready: bool) -> None: ...


class LossHook(Protocol):
    """Hears of each lost actor, before another starts. `died`: rather than being silent."""

    def __call__(self, actor: int, reason: str, *, died: bool) -> None: ...
