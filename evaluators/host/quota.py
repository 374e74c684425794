"""How much a program may write in its folders, and how much it has written.

Runs in the judge's process (trusted). A program fills its folders as it likes, also while they are counted, so nothing
in here may follow a link in one, trust its depth, or count for longer than the quota allows.

A file that has no name any more is in no folder, and takes room until its program closes it. The free room of the disk
shows it, but not whose it is: that shows when the program has ended.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MOST_DEPTH = 64
_BLOCK_BYTES = 512  # the unit of `st_blocks`
_RESERVE = 4  # times the quota: a disk with less room than that is nearly full


class OverQuota(Exception):
    """A program has written more than it may. The message says how much, and the limit."""


@dataclass(frozen=True)
class Amount:
    """Bytes on a disk, and files. A folder, a link or a pipe is a file, too."""

    bytes: int
    files: int

    def exceeds(self, other: Amount) -> bool:
        """Whether there are more bytes, or more files."""
        return self.bytes > other.bytes or self.files > other.files

    def less(self, other: Amount) -> Amount:
        """The difference, which may be negative."""
        return Amount(self.bytes - other.bytes, self.files - other.files)

    def times(self, factor: int) -> Amount:
        return Amount(factor * self.bytes, factor * self.files)

    def __str__(self) -> str:
        return f"{self.bytes / 2**20:.0f} MiB in {self.files} files"


ANY_AMOUNT = Amount(sys.maxsize, sys.maxsize)


@dataclass(frozen=True)
class Contents:
    """What a folder holds. `counted_all` is false if there is more: than the quota, in folders that are nested too
    deeply, or in folders that the judge may not read."""

    amount: Amount
    counted_all: bool


def contents_of(folder: Path, most: Amount = ANY_AMOUNT) -> Contents:
    """Counts what a folder holds, until it is more than `most`. A folder that does not exist holds nothing."""
    counter = _Counter(most)
    counter.enter(str(folder), None, 0)
    return Contents(Amount(counter.bytes, counter.files), counter.counted_all)


class _Counter:
    def __init__(self, most: Amount) -> None:
        self._most = most
        self.bytes = self.files = 0
        self.counted_all = True

    def enter(self, name: str, parent: int | None, depth: int) -> None:
        """Counts a folder by its name in the folder that the descriptor `parent` stands for."""
        if depth > _MOST_DEPTH:
            self.counted_all = False
            return
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError:
            self.counted_all = False
            return
        try:
            self._count(descriptor, depth)
        finally:
            os.close(descriptor)

    def _count(self, descriptor: int, depth: int) -> None:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                self.bytes += status.st_blocks * _BLOCK_BYTES
                self.files += 1
                if Amount(self.bytes, self.files).exceeds(self._most):
                    self.counted_all = False
                elif stat.S_ISDIR(status.st_mode):
                    self.enter(entry.name, descriptor, depth + 1)
                if not self.counted_all:
                    return


class FolderQuota:
    """The quota of one program: each of its folders may hold `most`."""

    def __init__(self, folders: Sequence[Path], most: Amount) -> None:
        self.most = most
        self._folders = tuple(folders)
        self._disks = {folder.parent: free_on(folder.parent) for folder in folders}

    def check(self) -> None:
        """Raises OverQuota if a folder holds more than it may."""
        for folder in self._folders:
            contents = contents_of(folder, self.most)
            if contents.amount.exceeds(self.most):
                raise OverQuota(f"the program wrote {contents.amount} or more, and may write {self.most} to a folder")
            if not contents.counted_all:
                raise OverQuota(f"the program made folders that nobody can count; it may write {self.most} to a folder")

    def overfull(self) -> list[Path]:
        """The folders that hold more than they may."""
        return [folder for folder in self._folders if not contents_of(folder, self.most).counted_all]

    def drained_disk(self) -> Path | None:
        """A folder on a disk that is nearly full, and has lost more room than the quota since the program began."""
        for place, before in self._disks.items():
            now = free_on(place)
            if before.less(now).exceeds(self.most) and self.most.times(_RESERVE).exceeds(now):
                return place
        return None

    def full_disk(self) -> Path | None:
        """A folder on a disk that has less room than the quota."""
        return next((place for place in self._disks if self.most.exceeds(free_on(place))), None)


def free_on(place: Path) -> Amount:
    """The room on a disk; any amount if it cannot be learned."""
    with suppress(OSError):
        status = os.statvfs(place)
        return Amount(status.f_bavail * status.f_frsize, status.f_favail if status.f_files else sys.maxsize)
    return ANY_AMOUNT
