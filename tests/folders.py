"""Folders that runners can enter, and the modes of folders that no test made."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that other users may enter, as root's runners are. pytest's own folders are private."""
    with tempfile.TemporaryDirectory(prefix="warpsmith-tests-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def modes_above() -> dict[str, str]:
    """The modes of the folder of temporary files and of those that it lies in."""
    place = Path(tempfile.gettempdir()).absolute()
    return {str(folder): oct(folder.stat().st_mode) for folder in (place, *place.parents)}
