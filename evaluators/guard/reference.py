"""The reference must be as fast beside the program as it is by itself."""

from __future__ import annotations

from collections.abc import Iterable

from evaluators.guard.evidence import Evidence
from evaluators.records import Finding

_SLOWED = 1.15  # times as long; of 96 honest programs on a CPU the largest lower end was 1.04


class ReferenceIsUnharmed:
    """Against a program that makes the reference slow, such as by what it leaves in the caches or on the device. One
    that seems slower than the reference all the same gains nothing; a very slow one leaves little in the caches."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        slowed, timing = evidence.slowed, evidence.timing
        gains = timing.reference_seconds.value > timing.candidate_seconds.value
        if gains and slowed is not None and slowed.low > _SLOWED:
            message = f"the reference takes {slowed.value:.2f} times as long beside the program as by itself"
            yield Finding("neighbours", "suspect", message)
