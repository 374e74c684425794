"""What one evaluation leaves for the guard to read. Gathered by the judge; what a runner only claims is marked so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from evaluators.host.census import Census
from evaluators.records import Estimate, Finding, Timing, Trace
from evaluators.timing.clocks import Hidden


@dataclass(frozen=True)
class Evidence:
    """Of one candidate and the reference beside it.

    `together` and `alone`: seconds a call of the reference and of the candidate, in bursts, whose inputs all stand
    ready, and one at a time, whose `low` is the least (None where bursts are of one call anyway).
    `alone_seconds` and `is_of_host` are the clock's (`evaluators.timing.clocks`).
    `waited`: the share of a burst for which the reference waited for a core, beyond the candidate's in the next.
    `beside_seconds`: of CPU time that the candidate took while it had not been asked for anything.
    `floor_bytes`: of its output that a call must write, and `floor_seconds` in which no device like this can do it
    faster.
    `missing_weights`: names of the reference's parameters and buffers that its state does not hold, under any name.
    `flags` (a claim): global numeric flags that its calls left otherwise than both sides start them with.
    `replaced` (a claim): functions by which the runner measures that are not what they were before the program.
    """

    source: str
    timing: Timing
    hidden: Hidden
    together: tuple[Estimate, Estimate]
    alone: tuple[Estimate, Estimate] | None
    waited: Estimate
    reference: Census
    candidate: Census
    alone_seconds: float = 5e-5
    is_of_host: bool = True
    beside_seconds: float = 0.0
    floor_bytes: int = 0
    floor_seconds: float = 0.0
    missing_weights: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    trace: Trace | None = None


class Defence(Protocol):
    """Knows one kind of cheat by one kind of evidence."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        """What there is to say: nothing of an honest program, unless it is a hint."""
