"""The lock of a run's folder on a local file system, and the process that holds it.

The kernel drops the lock when the process ends, so a kill never leaves a stale one. For other file systems there is
`orchestration.run.lease`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from orchestration.run.errors import RunDirectoryError

_NAME = "lock"
_TRIES, _PAUSE = 5, 0.1  # seconds between them


@dataclass(frozen=True)
class Holder:
    """The process that runs in a folder."""

    pid: int
    host: str

    def __str__(self) -> str:
        return f"{self.pid} on {self.host}" if self.host else str(self.pid)


def refusal(place: object, holder: Holder | None) -> RunDirectoryError:
    """What a second process is told."""
    return RunDirectoryError(
        f"{place}: process {holder or 'unknown'} is running in it; stop that one, or choose another name=..."
    )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Within this block no other process is in a block of the same folder. Raises RunDirectoryError if one is."""
    folder.mkdir(parents=True, exist_ok=True)
    # Not the package filelock: the file also names the process that holds it, which filelock does not store.
    with open(folder / _NAME, "a+", encoding="utf-8") as file:
        for tries_left in reversed(range(_TRIES)):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if not tries_left:
                    raise refusal(folder, _holder_in(file)) from error
                time.sleep(_PAUSE)  # `holder_of` has it for a moment
        file.truncate(0)
        file.write(f"{os.getpid()} on {os.uname().nodename}")
        file.flush()
        yield
        file.truncate(0)


def holder_of(folder: Path) -> Holder | None:
    """The process that is in a block of `locked` now."""
    path = folder / _NAME
    if not path.is_file():
        return None
    with open(path, "r+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _holder_in(file)
        return None


def named_holder(folder: Path) -> Holder | None:
    """The process whose name the lock's file holds, without a touch of the lock: a killed process leaves its name."""
    try:
        with open(folder / _NAME, encoding="utf-8") as file:
            return _holder_in(file)
    except FileNotFoundError:
        return None


def _holder_in(file: TextIO) -> Holder | None:
    """Who wrote its name into a lock file; None if nobody has yet."""
    file.seek(0)
    pid, _, host = file.read().strip().partition(" on ")
    return Holder(int(pid), host) if pid.isdecimal() else None
