"""File locks, so that identical builds of several processes happen once. The kernel drops them with their process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.02


@contextmanager
def locked(path: Path, timeout: float) -> Iterator[None]:
    """Holds an exclusive lock within the block. If another process keeps it for `timeout` seconds, logs a warning and
    enters the block without it: identical builds then happen twice, which costs time and nothing else."""
    lock = FileLock(path, timeout=timeout, poll_interval=_POLL_SECONDS, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        _log.warning("build farm: %s has been locked for %.0f s; building beside its holder", path.name, timeout)
    try:
        yield
    finally:
        lock.release()
