"""What is left of a runner after its calls, as the kernel counts it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Census:
    """Threads of a runner and processes below it after the timed calls, and the seconds of CPU time that these
    processes have taken."""

    threads: int
    children: int
    children_seconds: float
