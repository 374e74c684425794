"""Who may enter the folder in which commands keep baselines, builds and hack cases between calls."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def open_to_runners() -> Iterator[None]:
    """Within this block, new folders can be entered by runners, who are other users if we are root."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def warn_if_closed(store: Path) -> None:
    """Warns root if its runners cannot enter the store. They then keep the right to read every file of the host."""
    if os.geteuid() == 0:
        path = store.absolute()
        closed = next((folder for folder in (path, *path.parents) if not folder.stat().st_mode & 1), None)
        if closed is not None:
            _log.warning("--store %s: runners are other users and may not enter %s; choose another", store, closed)
