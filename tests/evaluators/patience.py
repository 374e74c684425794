"""How much longer than on an idle machine everything takes here now. Imports no other test: judges on restricted hosts
use it, too."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

_SPIN_SECONDS = 0.1  # of CPU time


def patience() -> float:
    """The seconds that pass while this process computes for one, at least 1. Limits of programs that shall end within
    them are as many times as long; nothing that a test asserts is."""
    begun, spent = time.monotonic(), time.process_time()
    while time.process_time() - spent < _SPIN_SECONDS:
        pass
    return max(1.0, (time.monotonic() - begun) / _SPIN_SECONDS)


def stalled() -> float:
    """The share of the last ten seconds in which some process waited for a core; 0 where the kernel does not tell
    (Linux, "Pressure Stall Information")."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        some = Path("/proc/pressure/cpu").read_text().splitlines()[0].split()
        return next(float(word.removeprefix("avg10=")) for word in some if word.startswith("avg10=")) / 100
    return 0.0
