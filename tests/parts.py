"""Prints how many parts of the suite `make test` runs side by side: fewer where other programs keep the cores busy.

Most tests wait for processes, so on idle cores many parts side by side take the least time. On busy ones each would get
so little of a core that limits on hung programs end honest ones.
"""

from __future__ import annotations

import psutil

IDLE, BUSY = 6, 2
_SECONDS = 1.0
_MOST_BUSY_PERCENT = 50.0  # of all cores, by others


def parts() -> int:
    """How many parts there are to be, by what the cores do for a second."""
    return BUSY if psutil.cpu_percent(_SECONDS) > _MOST_BUSY_PERCENT else IDLE


if __name__ == "__main__":
    print(parts())
