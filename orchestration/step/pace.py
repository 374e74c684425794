"""A rate limit: when a request may begin, so that there are no more than so many in a minute."""

from __future__ import annotations

import math


class Pace:
    """Lets requests begin at even distances. It has no clock of its own."""

    def __init__(self, per_minute: float) -> None:
        """`per_minute`: the most requests that begin in a minute; 0: no limit."""
        self._distance = 60.0 / per_minute if per_minute else 0.0
        self._free_at = -math.inf

    def wait(self, now: float) -> float:
        """Seconds from now until a request may begin, which takes that place. `now`: seconds on any clock that never
        goes back."""
        begins = max(now, self._free_at)
        self._free_at = begins + self._distance
        return begins - now
