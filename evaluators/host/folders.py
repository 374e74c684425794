"""Temporary folders of a judge: how they are given to a runner's user, and how they are removed, if need be after the
judge's death.

Runs in the judge's process (trusted). A runner fills such a folder as it likes, so nothing in here may follow a link
in one or trust its depth. The folder of a living judge must never be removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

_COMMAND_SECONDS = 60.0
_OWNED = re.compile(r"warpsmith-(?:runner|store|build)-([0-9a-f]{8})-(\d{1,10})-(\d{1,20})-")


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


def own_folder(name: str) -> Path:
    """A folder for temporary files that outlives this process. Only processes of this user can write in it."""
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022:
        return folder
    return Path(tempfile.mkdtemp(prefix=f"{name}-"))


def own_prefix(kind: str) -> str:
    """The beginning of the name of a temporary folder of this process, by which `remove_left_folders` will know whether
    the process is still alive. `kind`: `runner`, `store` or `build`."""
    return f"warpsmith-{kind}-{_place()}-{os.getpid()}-{_start_of(os.getpid())}-"


def remove_left_folders() -> None:
    """Removes the temporary folders of judges that have died, unless they are another user's. Those of judges in other
    containers stay: whether these live cannot be seen from here."""
    for folder in Path(tempfile.gettempdir()).glob("warpsmith-*"):
        owner = _OWNED.match(folder.name)
        if owner is None or owner[1] != _place() or _start_of(int(owner[2])) == int(owner[3]):
            continue
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and os.geteuid() in (0, status.st_uid):
                remove_folder(folder)


def _place() -> str:
    """Names the numbering of processes that this process belongs to: of the host since its start, or of a container."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    return hashlib.sha256(f"{boot} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:8]


def _start_of(process: int) -> int:
    """When a process was started, in ticks since the host's start; -1 if there is none of that id."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[19])
    return -1
