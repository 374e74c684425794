"""Whether the measured process still measured with the functions that it had before the program was loaded."""

from __future__ import annotations

from collections.abc import Iterable

from evaluators.guard.evidence import Evidence
from evaluators.records import Finding

_NAMED = 4


class MeasurementIsWhole:
    """Against numeric flags that are set within a call, and so hold for the candidate alone. Against replaced clocks,
    synchronisation, comparisons and parts of the runner. No program has to replace these to be fast. A program that
    does so wants a wrong measurement, whether it succeeds or not."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        if evidence.flags:
            message = f"its calls set {', '.join(evidence.flags[:_NAMED])}, under which the reference did not run"
            yield Finding("flags", "suspect", message)
        if evidence.replaced:
            names = ", ".join(evidence.replaced[:_NAMED])
            more = len(evidence.replaced) - _NAMED
            named = f"{names} and {more} more" if more > 0 else names
            yield Finding("integrity", "hack", f"it replaced what it is measured by: {named}")
