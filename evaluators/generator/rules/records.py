"""A program that a rule made, and what can be said about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class RuleVariant:
    """A program by a rule.

    `profiles`: the devices that it is for. `analysis` and `design`: a teacher's words. `facts`: the same as values, so
    that two variants can be compared in words once their speed-ups are measured.
    """

    name: str
    rule: str
    profiles: tuple[str, ...]
    analysis: str
    design: str
    source: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_row(self) -> dict[str, Any]:
        """The variant as plain values."""
        return {**asdict(self), "expect": "faster", "profiles": list(self.profiles), "facts": dict(self.facts)}
