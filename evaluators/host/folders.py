"""Folders that runners write in: how they are given to a runner's user, and how they are removed.

Runs in the judge's process (trusted). A runner fills such a folder as it likes, so nothing in here may follow a link
in one or trust its depth.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_COMMAND_SECONDS = 60.0


def give_folder(folder: Path, user: int) -> None:
    """Makes `user` the owner of a folder and of all that is in it. Does nothing unless we are root: nobody else can
    give files away."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(folder, user, user)
        if any(folder.iterdir()):  # files of another runner, which may be nested deeply
            command = ["chown", "--recursive", "--no-dereference", "-P", f"{user}:{user}", str(folder)]
            subprocess.run(command, stderr=subprocess.DEVNULL, timeout=_COMMAND_SECONDS, check=False)


def remove_folder(folder: Path) -> None:
    """Removes a folder that a program wrote in. It may be nested too deeply for shutil, or closed to its owner."""
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        for command in (["chmod", "--recursive", "u+rwx", str(folder)], ["rm", "-rf", str(folder)]):
            subprocess.run(command, stderr=subprocess.DEVNULL, timeout=_COMMAND_SECONDS, check=False)
