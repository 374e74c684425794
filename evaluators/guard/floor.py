"""A call cannot be faster than the device can write the new values of its output."""

from __future__ import annotations

from collections.abc import Iterable

from evaluators.guard.evidence import Evidence
from evaluators.records import Finding

LEAST_SECONDS = 1e-6
"""The shortest floor that counts: clocks, and the corrections to them, are not finer."""


class FloorHolds:
    """Against results that are made up or put off, and against clocks that lie: a time that no device can reach is not
    the time of the work, whatever the trick."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        taken = evidence.timing.candidate_seconds
        if taken.high < evidence.floor_seconds - LEAST_SECONDS:
            written = f"{evidence.floor_bytes / 2**20:.1f} MiB of its output are new at each call"
            message = f"and take at least {1e6 * evidence.floor_seconds:.1f} µs to write: a call is said to take"
            yield Finding("floor", "suspect", f"{written}, {message} {1e6 * taken.value:.1f} µs")
