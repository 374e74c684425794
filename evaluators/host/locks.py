"""Locks of a host's measuring slots: one file a core or GPU. One evaluator of any user holds a file exclusively, or any
number of processes that measure nothing share it.

Runs in the judge's process (trusted). Nothing in here may need to write to a lock file, which may be another user's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

from evaluators.failures import InfraError

_Place = TypeVar("_Place")
_SHARED_MODE = 0o1777


def shared_folder() -> Path:
    """The host's folder of locks and incidents, which evaluators of all users share. It belongs to the first of them.

    Raises InfraError for anything in its place that is no folder in which everybody can write, and nobody can remove
    the files of others. A folder for this user alone would not do: evaluators would measure at the same time.
    """
    folder = Path(tempfile.gettempdir()) / "warpsmith-slots"
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise InfraError(f"{folder} is no folder for the locks of evaluators ({error.strerror}): remove it") from error
    try:
        status = os.fstat(descriptor)
        if status.st_mode & 0o7777 == _SHARED_MODE:
            return folder
        if status.st_uid != os.geteuid():
            raise InfraError(f"{folder} belongs to user {status.st_uid}, who must `chmod 1777` it, or remove it")
        os.fchmod(descriptor, _SHARED_MODE)  # mkdir's mode is subject to the umask
    finally:
        os.close(descriptor)
    return folder


def open_shared(path: Path, mode: int) -> int:
    """Opens a file of the shared folder for reading, which may belong to another user, or makes it. Raises OSError for
    a link."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
            os.fchmod(descriptor, mode)  # with any umask
            return descriptor


class HostLocks(Generic[_Place]):
    """Holds the lock files of one place at a time.

    filelock does not serve here: its locks on a file of another user are exclusive only, and its shared locks
    (`ReadWriteLock`) are SQLite databases that every holder must be able to write to.
    """

    def __init__(self) -> None:
        self._held: list[int] = []

    def acquire(
        self, places: Sequence[tuple[_Place, Sequence[str]]], timeout: float, *, shared: bool = False
    ) -> _Place:
        """Locks all files of the first place for which that is possible, and returns the place.

        `places`: each with the names of its lock files. `shared`: others may hold the files, too, if they share them.
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
        """Locks all files or none, and returns whether it did."""
        for path in paths:
            try:
                self._held.append(open_shared(path, 0o644))
                fcntl.flock(self._held[-1], kind | fcntl.LOCK_NB)
            except BlockingIOError:
                self.release()
                return False
        return True

    def release(self) -> None:
        """Gives back all locks that it holds; there may be none."""
        while self._held:
            os.close(self._held.pop())
