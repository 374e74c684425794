"""How much longer than on an idle machine everything takes here now. Imports no other test: judges on restricted hosts
use it, too."""

from __future__ import annotations

import time

_SPIN_SECONDS = 0.1  # of CPU time


def patience() -> float:
    """The seconds that pass while this process computes for one, at least 1. Limits of programs that shall end within
    them are as many times as long; nothing that a test asserts is."""
    begun, spent = time.monotonic(), time.process_time()
    while time.process_time() - spent < _SPIN_SECONDS:
        pass
    return max(1.0, (time.monotonic() - begun) / _SPIN_SECONDS)
