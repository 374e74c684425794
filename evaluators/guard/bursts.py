"""Calls are timed in bursts whose inputs all stand ready; a call alone must not take much longer than one of many."""

from __future__ import annotations

from collections.abc import Iterable

from evaluators.guard.evidence import Evidence
from evaluators.records import Estimate, Finding

_SHARE = 0.2  # of a call alone
_FACTOR = 1.0  # as much longer as the reference's


class EveryCallPays:
    """Against a call that does the work of those after it, as one larger batch or while it is not timed itself.

    Alone it has only its own input. The reference shows what being alone takes by itself."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        together, alone = evidence.together, evidence.alone
        if alone is not None and takes_longer_alone(together, alone, evidence.alone_seconds, evidence.is_of_host):
            figures = (1e6 * one.value for one in (alone[1], together[1], alone[0], together[0]))
            message = "a call alone takes {:.0f} µs, one of a burst {:.0f} µs (the reference's {:.0f} and {:.0f} µs)"
            yield Finding("bursts", "suspect", message.format(*figures))


def takes_longer_alone(
    together: tuple[Estimate, Estimate], alone: tuple[Estimate, Estimate], alone_seconds: float, is_of_host: bool
) -> bool:
    """Whether the candidate's calls (the second of each) do, by more than being alone explains."""
    # Whatever disturbs a call adds to it, so the lower ends say what a call alone takes by itself. Where bursts were
    # disturbed more than the least call alone, the reference's show how much, if what disturbs one disturbs both.
    disturbed = min(1.0, alone[0].low / together[0].value) if is_of_host else 1.0
    longer = max(0.0, alone[0].low - together[0].value)
    gained = alone[1].low - disturbed * together[1].value
    by_itself = _SHARE * alone[1].low + _FACTOR * longer + alone_seconds
    return alone[1].low > disturbed * together[1].high and gained > by_itself
