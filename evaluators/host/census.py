"""What is left of a runner after its calls, as the kernel counts it.

A record of the trusted side: nothing in it comes from the runner itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Census:
    """Threads of a runner and processes below it after the timed calls; and the CPU time that these processes have
    taken, in seconds."""

    threads: int
    children: int
    children_seconds: float
