"""Rules that make fast variants of a drawn task. A variant is only a claim: the evaluator decides."""

from __future__ import annotations

from evaluators.generator.builder import Drawn
from evaluators.generator.rules.records import RuleVariant

__all__ = ["RuleVariant", "variants_of"]


def variants_of(drawn: Drawn) -> list[RuleVariant]:
    """The variants that the rules make of a task, in the order of the rules; no text twice."""
    return []
