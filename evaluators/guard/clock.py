"""Two clocks saw every burst: time that the judge's saw and the runner's did not is work outside of the calls."""

from __future__ import annotations

from collections.abc import Iterable

from evaluators.guard.evidence import Evidence
from evaluators.records import Finding

_SHARE = 0.25  # of the candidate's time hidden from its own clock: worth a finding
_CERTAIN_SHARE = 0.05  # likewise, where it is longer than noise can be


class ClocksAgree:
    """Against work that is put off past the end of a call, and clocks that are slowed or read at other moments."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        hidden = evidence.hidden
        is_much = hidden.share.low > _SHARE and hidden.seconds > hidden.least
        if is_much or (hidden.share.low > _CERTAIN_SHARE and hidden.seconds > hidden.certain):
            message = f"{hidden.share.value:.0%} of the time by the judge's clock is missing from the program's own"
            yield Finding("clocks", "suspect", message)
