"""Two clocks time every burst. Time that only the judge's clock saw is work outside of the calls."""

from __future__ import annotations

from collections.abc import Iterable

from evaluators.guard.evidence import Evidence
from evaluators.records import Finding

_SHARE = 0.25  # of the candidate's time is missing from its own clock: a finding
_CERTAIN_SHARE = 0.05  # the same, if the missing time is longer than noise can be


class ClocksAgree:
    """Against work that is put off until after the call, and against clocks that are slowed or read at other times."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        hidden = evidence.hidden
        is_much = hidden.share.low > _SHARE and hidden.seconds > hidden.least
        if is_much or (hidden.share.low > _CERTAIN_SHARE and hidden.seconds > hidden.certain):
            message = f"{hidden.share.value:.0%} of the time by the judge's clock is missing from the program's own"
            yield Finding("clocks", "suspect", message)
