"""Locks of a host's measuring slots: one file a core or GPU, held by one evaluator of any user at a time, or by any
number of those who measure nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

_Place = TypeVar("_Place")


def shared_folder() -> Path:
    """The host's folder of locks and notes between evaluators."""
    folder = Path(tempfile.gettempdir()) / "warpsmith-slots"
    folder.mkdir(exist_ok=True)
    with contextlib.suppress(PermissionError):
        folder.chmod(0o777)  # evaluators of other users share the slots; mkdir's mode is subject to the umask
    return folder


class HostLocks(Generic[_Place]):
    """Holds the lock files of one place at a time."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def acquire(
        self, places: Sequence[tuple[_Place, Sequence[str]]], timeout: float, *, shared: bool = False
    ) -> _Place:
        """The first of the places whose lock files (by name) were all free, or, `shared`, held by others who share.
        Raises TimeoutError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        folder = shared_folder()
        while True:
            for place, names in places:
                if self._lock_all([folder / name for name in names], fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
                    return place
            if time.monotonic() > deadline:
                raise TimeoutError(f"no free measuring slot on this host after {timeout:.0f} s ({folder})")
            time.sleep(0.02)

    def _lock_all(self, paths: Sequence[Path], kind: int) -> bool:
        """All or none."""
        for path in paths:
            try:
                self._held.append(_open(path))
                fcntl.flock(self._held[-1], kind | fcntl.LOCK_NB)
            except BlockingIOError:
                self.release()
                return False
        return True

    def release(self) -> None:
        while self._held:
            os.close(self._held.pop())


def _open(path: Path) -> int:
    """Opens a lock file that may belong to another user, or makes it."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
