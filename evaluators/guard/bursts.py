"""Calls are timed in bursts whose inputs all stand ready; a call alone must not take much longer than one of many."""

from __future__ import annotations

from collections.abc import Iterable

from evaluators.guard.evidence import Evidence
from evaluators.records import Finding

_SHARE = 0.2  # of a call alone
_FACTOR = 2.0  # as much longer as the reference's


class EveryCallPays:
    """Against a call that does the work of those after it, as one larger batch or while it is not timed itself.

    Alone it has only its own input. The reference shows what being alone takes by itself."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        if evidence.alone is None:
            return
        (reference, candidate), together = evidence.alone, evidence.together
        # Whatever disturbs a call adds to it, so the lower ends say what a call alone takes by itself.
        longer = max(0.0, reference.low - together[0].value)
        gained = candidate.low - together[1].value
        if (
            candidate.low > together[1].high
            and gained > _SHARE * candidate.low + _FACTOR * longer + evidence.alone_seconds
        ):
            figures = (1e6 * one.value for one in (candidate, together[1], reference, together[0]))
            message = "a call alone takes {:.0f} µs, one of a burst {:.0f} µs (the reference's {:.0f} and {:.0f} µs)"
            yield Finding("bursts", "suspect", message.format(*figures))
