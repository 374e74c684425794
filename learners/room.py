"""Full disks and used-up quotas: how to tell them from other failures, and what to tell the user.

A run that meets one ends, since waiting does not help; nothing that it had committed is touched.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)
_PROBE_BYTES = 1 << 20


class DiskFull(OSError):
    """A file system has no room for what was to be written. The message says which, how much is free, and the
    remedy."""


def tells_of_full(text: str) -> bool:
    """Whether a text has the words of such an error. Programs may print them as well, so look (`check_room`)."""
    return any(os.strerror(number) in text for number in FULL)


def is_full(error: BaseException) -> bool:
    """Whether the error says that there is no room."""
    return isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in FULL)


def disk_full(folder: object, error: BaseException) -> DiskFull:
    """The error to raise for one that says that there is no room in a folder; itself if it says where."""
    if isinstance(error, DiskFull):
        return error
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else " ".join(str(error).split())
    return DiskFull(f"{folder}: {reason}{_free_below(str(folder))}; make room there, or raise the quota")


def _free_below(folder: str) -> str:
    """How much is free where a folder is or would be; empty if that is no local folder."""
    path = Path(folder).absolute()
    if "://" in folder:
        return ""
    while not path.exists() and path != path.parent:
        path = path.parent
    with suppress(OSError):
        sizes = os.statvfs(path)
        free, total = (count * sizes.f_frsize / (1 << 20) for count in (sizes.f_bavail, sizes.f_blocks))
        return f" ({free:,.1f} of {total:,.0f} MiB are free)"
    return ""


@contextmanager
def telling_room(folder: object) -> Iterator[None]:
    """Raises DiskFull with the folder's name for an error in this block that says that there is no room."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise disk_full(folder, error) from error


def check_room(folder: Path, size: int = _PROBE_BYTES) -> None:
    """Raises DiskFull if not even a file of `size` bytes has room in a folder, as after a library's write that filled
    the disk and failed with an error of its own."""
    path = folder / f".probe-{os.getpid()}"
    try:
        with telling_room(folder), suppress(FileNotFoundError), open(path, "wb") as file:
            file.write(bytes(size))
            file.flush()
            os.fsync(file.fileno())
    finally:
        with suppress(OSError):
            path.unlink()


@contextmanager
def telling_full_disk(folder: Path) -> Iterator[None]:
    """As `telling_room`, for writers of libraries: a full disk is found whatever error they raise."""
    try:
        yield
    except Exception as error:
        if is_full(error):
            raise disk_full(folder, error) from error
        try:
            check_room(folder)
        except DiskFull as full:
            raise full from error
        raise
