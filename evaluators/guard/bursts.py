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
        if alone is not None and takes_longer_alone(together, alone, evidence.alone_seconds, evidence.is_of_host):
            figures = (1e6 * seconds.value for seconds in (alone[1], together[1], alone[0], together[0]))
            message = "a call alone takes {:.0f} µs, one of a burst {:.0f} µs (the reference's {:.0f} and {:.0f} µs)"
            yield Finding("bursts", "suspect", message.format(*figures))


def takes_longer_alone(
    together: tuple[Estimate, Estimate], alone: tuple[Estimate, Estimate], alone_seconds: float, is_of_host: bool
) -> bool:
    """Whether the candidate's calls take longer alone, by more than being alone explains.

    `together` and `alone` are seconds a call, of the reference and of the candidate; `alone_seconds` is what the clock
    allows for a call alone, and `is_of_host` says whether it is the host's clock."""
    # Other load only ever adds to a call, so the lower end is what an undisturbed call alone takes. Other load can slow
    # a burst more than the fastest single call. The reference's bursts show by how much, because both sides share the
    # load.
    undisturbed = min(1.0, alone[0].low / together[0].value) if is_of_host else 1.0
    longer = max(0.0, alone[0].low - together[0].value)
    gained = alone[1].low - undisturbed * together[1].value
    allowed = _SHARE * alone[1].low + _FACTOR * longer + alone_seconds
    return alone[1].low > undisturbed * together[1].high and gained > allowed
