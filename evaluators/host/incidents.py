"""Faults of a host's devices, for the evaluators of its other devices: a measurement that overlapped a fault is
repeated.

Runs in the judge's process (trusted).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from evaluators.host.locks import open_shared, shared_folder

_PREFIX = "incident-"
_COARSE_SECONDS = 0.01  # a file's time may lag behind the clock by so much


class Incidents:
    """One small file a device. Its time of change is the time of the device's last fault."""

    def __init__(self, device: str) -> None:
        self._own = f"{_PREFIX}{device}"

    def record(self) -> None:
        """Records that a program has just made this device fail."""
        descriptor = open_shared(shared_folder() / self._own, 0o666)  # anybody may set the time of another user's
        try:
            os.utime(descriptor)
        finally:
            os.close(descriptor)

    def since(self, start: float) -> list[str]:
        """Other devices of the host that failed after `start` (seconds since the epoch, by `time.time`)."""
        start -= _COARSE_SECONDS
        others = [path for path in shared_folder().glob(f"{_PREFIX}*") if path.name != self._own]
        return [path.name.removeprefix(_PREFIX) for path in others if _changed(path) >= start]


def _changed(path: Path) -> float:
    try:
        return min(path.stat().st_mtime, time.time())
    except OSError:
        return 0.0
