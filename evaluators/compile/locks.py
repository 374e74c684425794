"""File locks, so that several processes do the same work once, and remove nothing that another uses. The kernel drops
them with their process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.02


@contextmanager
def locked(path: Path, timeout: float, work: str = "building") -> Iterator[None]:
    """Holds an exclusive lock within the block. If another process keeps it for `timeout` seconds, logs a warning and
    enters the block without it: the same `work` is then done twice, which costs time and nothing else."""
    lock = _lock(path, timeout)
    try:
        lock.acquire()
    except Timeout:
        _log.warning("%s has been locked for %.0f s; %s beside its holder", path.name, timeout, work)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def held(path: Path, timeout: float) -> Iterator[None]:
    """Holds an exclusive lock within the block. Raises TimeoutError if another process keeps it for `timeout`
    seconds."""
    lock = _lock(path, timeout)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def unless_locked(path: Path) -> Iterator[bool]:
    """Holds an exclusive lock within the block, if no process holds it now. Gives whether it does. The file may be
    removed within the block: whoever waits for it then makes another."""
    lock = _lock(path, 0.0)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _lock(path: Path, timeout: float) -> BaseFileLock:
    return FileLock(path, timeout=timeout, poll_interval=_POLL_SECONDS, fallback_to_soft=False)
