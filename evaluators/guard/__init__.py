"""The guard: what the evidence of one evaluation says about how its speed came about.

Each defence reads one kind of evidence and knows one kind of cheat. What was seen at run time decides; what a program's
text looks like is a hint, and never decides alone. Most cheats never come this far: they have no effect on a judge that
owns inputs, expected outputs and clock, or make the output wrong (`evaluators.judge.judge`).
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
from evaluators.guard.text import TextIsPlain
from evaluators.guard.weights import WeightsAreThere
from evaluators.records import Finding

DEFENCES: tuple[Defence, ...] = (
    ClocksAgree(),
    FloorHolds(),
    NothingIsHidden(),
    EveryCallPays(),
    NothingRunsBeside(),
    MeasurementIsWhole(),
    WeightsAreThere(),
    TextIsPlain(),
)


def examine(evidence: Evidence, defences: Sequence[Defence] = DEFENCES) -> list[Finding]:
    """What the defences find in the evidence, in their order."""
    return [finding for defence in defences for finding in defence.examine(evidence)]


__all__ = ["DEFENCES", "Defence", "Evidence", "examine"]
