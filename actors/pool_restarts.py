"""When the next actor of a place may start, if those before it were lost soon after they started."""

from __future__ import annotations

import random
from collections.abc import Callable

STEADY_SECONDS = 60.0
"""An actor that was lost sooner after it was ready was lost early."""
FIRST_SECONDS, MOST_SECONDS = 1.0, 60.0


def pause_before_start(early_losses: int, draw: Callable[[], float] = random.random) -> float:
    """Seconds to wait after so many early losses in a row: none after one, then 1, 2, 4, ... up to a minute.

    Of these, a random half is left out, so that places that fail together do not start together. `draw`: a number from
    0 to 1.
    """
    if early_losses < 2:
        return 0.0
    longest = min(FIRST_SECONDS * 2.0 ** min(early_losses - 2, 30), MOST_SECONDS)
    return longest * (0.5 + 0.5 * draw())
