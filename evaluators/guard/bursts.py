"""A call alone must not take much longer than a call of a burst, whose inputs are all there before it begins."""

from __future__ import annotations

from collections.abc import Iterable

from evaluators.guard.evidence import Evidence
from evaluators.records import Estimate, Finding

_SHARE = 0.2  # of the candidate's call alone
_FACTOR = 1.0  # of what being alone adds to the reference's call


class EveryCallPays:
    """Against a call that does the work of later calls, as one larger batch or in moments that are not timed.

    A call alone has only its own input. The reference shows how much time being alone costs an honest program."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        together, alone = evidence.together, evidence.alone
        if alone is not None and takes_longer_alone(together, alone, evidence.alone_seconds):
            figures = (1e6 * seconds.low for seconds in (alone[1], together[1], alone[0], together[0]))
            message = "a call alone takes {:.0f} µs, one of a burst {:.0f} µs (the reference's {:.0f} and {:.0f} µs)"
            yield Finding("bursts", "suspect", message.format(*figures))


def takes_longer_alone(
    together: tuple[Estimate, Estimate], alone: tuple[Estimate, Estimate], alone_seconds: float
) -> bool:
    """Whether the candidate's calls take longer alone, by more than being alone explains.

    `together` and `alone` are seconds a call, of the reference and of the candidate; `alone_seconds` is what the clock
    allows for a call alone. The shortest of each (`low`) are compared: other load only ever adds to a call."""
    longer = max(0.0, alone[0].low - together[0].low)
    gained = alone[1].low - together[1].low
    return gained > _SHARE * alone[1].low + _FACTOR * longer + alone_seconds
