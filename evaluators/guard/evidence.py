"""The evidence of one evaluation. The judge gathers it; what only the runner claims is marked as a claim."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from evaluators.host.census import Census
from evaluators.records import Estimate, Finding, Timing, Trace
from evaluators.timing.clocks import Hidden


@dataclass(frozen=True)
class Evidence:
    """Evidence on one candidate and the reference beside it.

    `together` and `alone`: seconds a call, of the reference and of the candidate, with the shortest as `low`.
    `together` is of bursts, whose inputs are all there before they begin; `alone` is of single calls (None if bursts
    have one call anyway).
    `alone_seconds`: a property of the clock (`evaluators.timing.clocks`).
    `waited`: the share of a burst for which the reference waited for a core, minus the candidate's share in the next.
    `slowed`: how many times as long the reference takes right after the candidate as right after itself, or as before
    the candidate was loaded.
    `beside_seconds`: CPU time of the candidate while it had not been asked for anything.
    `floor_bytes`: bytes of its output that a call must write. `floor_seconds`: the least time in which a device like
    this can write them.
    `missing_weights`: the reference's parameters and buffers that the candidate's state does not hold, under any name.
    `flags` (a claim): global numeric flags that differ after its calls from the values with which both sides start.
    `is_recorded`: whether there must be a `trace` (a claim), with the kernels of a call that fills its output.
    `replaced` (a claim): functions by which the runner measures, and which the program replaced.
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
    slowed: Estimate | None = None
    beside_seconds: float = 0.0
    floor_bytes: int = 0
    floor_seconds: float = 0.0
    missing_weights: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    trace: Trace | None = None
    is_recorded: bool = False


class Defence(Protocol):
    """Recognises one kind of cheat by one kind of evidence."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        """The findings: of an honest program none but hints."""
