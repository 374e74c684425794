"""Files that appear whole or not at all, whoever else writes them at the same time, and whenever a writer ends."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_SUFFIX = ".partial"
_ABANDONED_SECONDS = 86400.0


def write_whole(path: Path, content: str | bytes) -> None:
    """Makes or replaces a file, durably; text in UTF-8. Of several writers the last one counts. Raises OSError."""
    descriptor, name = tempfile.mkstemp(_SUFFIX, f"{path.name}.", path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def remove_abandoned(folder: Path) -> None:
    """Removes what writers left in a folder that were killed more than a day ago."""
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()
