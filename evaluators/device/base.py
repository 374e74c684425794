"""What the judge asks of a device: memory that both processes see, one measuring slot at a time, and its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass
class Region:
    """Memory that the judge allocated: `memory` is its own uint8 view, `descriptor` what a runner maps."""

    memory: Tensor
    descriptor: int
    size: int

    def close(self) -> None: ...


@dataclass(frozen=True)
class Slot:
    """One place on the host where one measurement runs at a time."""

    index: int
    cores: tuple[int, ...]


class Device(Protocol):
    """A kind of processor that candidates are measured on."""

    arch: str
    threads: int

    def allocate(self, size: int) -> Region:
        """`size` bytes of memory shared with the runners."""

    def acquire(self, timeout: float) -> Slot:
        """Waits for a free measuring slot of this host, which no other evaluator on it holds. Raises TimeoutError."""

    def release(self) -> None:
        """Gives the slot back."""

    def environment(self) -> Mapping[str, str]:
        """Environment variables of the runners."""

    def versions(self) -> Mapping[str, str]:
        """Software and hardware that timings depend on: part of a baseline's key, and of every verdict."""
