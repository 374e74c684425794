"""The folder in which Warpsmith keeps what it can make or fetch again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/warpsmith`, else `/var/cache/warpsmith` for root, else `~/.cache/warpsmith`.

    Root's runners are other users, who may not enter root's home.
    """
    cache = os.environ.get("XDG_CACHE_HOME")
    if cache:
        return Path(cache) / "warpsmith"
    return Path("/var/cache/warpsmith") if os.geteuid() == 0 else Path.home() / ".cache/warpsmith"
