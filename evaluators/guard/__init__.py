"""TRUSTED. The guard: whether the evidence of one evaluation shows that its speed is not honest.

Each defence reads one kind of evidence and knows one kind of cheat. Evidence from run time decides. A program's text
gives hints, which never decide alone. Most cheats never come this far: the judge owns the inputs, the expected outputs
and the clock, so that a cheat has no effect on it or makes the output wrong (`evaluators.judge.judge`).
"""

from __future__ import annotations

from collections.abc import Sequence

from evaluators.guard.bursts import EveryCallPays
from evaluators.guard.census import NothingRunsBeside
from evaluators.guard.clock import ClocksAgree
from evaluators.guard.evidence import Defence, Evidence
from evaluators.guard.floor import FloorHolds
from evaluators.guard.hidden_work import NothingIsHidden
from evaluators.guard.integrity import MeasurementIsWhole
from evaluators.guard.records import KernelsAreSeen
from evaluators.guard.reference import ReferenceIsUnharmed
from evaluators.guard.text import TextIsPlain
from evaluators.guard.weights import WeightsAreThere
from evaluators.records import Finding

DEFENCES: tuple[Defence, ...] = (
    ClocksAgree(),
    FloorHolds(),
    NothingIsHidden(),
    KernelsAreSeen(),
    EveryCallPays(),
    NothingRunsBeside(),
    ReferenceIsUnharmed(),
    MeasurementIsWhole(),
    WeightsAreThere(),
    TextIsPlain(),
)


def examine(evidence: Evidence, defences: Sequence[Defence] = DEFENCES) -> list[Finding]:
    """The findings of all defences, in their order."""
    return [finding for defence in defences for finding in defence.examine(evidence)]


__all__ = ["DEFENCES", "Defence", "Evidence", "examine"]
