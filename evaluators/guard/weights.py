"""Weights are drawn again after construction and before timing. A program without weights escapes that check."""

from __future__ import annotations

from collections.abc import Iterable

from evaluators.guard.evidence import Evidence
from evaluators.records import Finding

_NAMED = 3


class WeightsAreThere:
    """Against work on the weights that the constructor does once, and that would be wrong for any other weights."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        missing = evidence.missing_weights
        if missing:
            more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
            message = f"its state holds nothing like {', '.join(missing[:_NAMED])}{more}"
            yield Finding("weights", "suspect", f"{message}, so that no other weights could be tried")
