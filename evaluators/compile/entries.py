"""Entries of the build cache in a local folder: written once, whole or not at all, and checked when they are read.

An entry is a folder named by its digest. It holds files and `record.json`, which describes them. One rename makes it
visible, so that writers need no lock, and a crash leaves nothing that looks like an entry.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORD = "record.json"
_IN_USE_SECONDS = 600.0  # an entry that was asked for since then may be about to be loaded
_ABANDONED_SECONDS = 86400.0


@dataclass(frozen=True)
class Entry:
    """Files in `folder`, which nobody may change, and their `record`. An entry that is not `kept` is not in the cache:
    its `folder` means nothing, and the next attempt may give another result."""

    folder: Path
    record: dict[str, Any]
    kept: bool = True


class DamagedEntryError(Exception):
    """The files of an entry are not those that its record describes."""


class LocalEntries:
    """The entries below a folder, which several processes may share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._partial = folder / "partial"
        self._partial.mkdir(parents=True, exist_ok=True)
        self._intact: set[str] = set()  # digests of the entries that this process has checked

    def place(self, digest: str) -> Path:
        """The folder of an entry, whether it exists or not."""
        return self.folder / digest[:2] / digest

    @contextlib.contextmanager
    def new_folder(self) -> Iterator[Path]:
        """A folder in which to prepare an entry. It is removed after the block unless `publish` has moved it."""
        partial = self._partial / secrets.token_hex(8)
        partial.mkdir(parents=True)
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def publish(self, partial: Path, digest: str) -> None:
        """Makes a complete folder the entry, unless another process was first."""
        place = self.place(digest)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.rename(place)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise

    def read(self, digest: str) -> Entry | None:
        """The entry, or None. Compares sizes with the record each time, and contents when this process first reads the
        entry. Raises DamagedEntryError."""
        place = self.place(digest)
        try:
            text = (place / RECORD).read_bytes()
        except FileNotFoundError:
            if place.exists():
                raise DamagedEntryError("it has no record") from None
            return None
        try:
            record = json.loads(text)
            files = record["files"].items()
        except (ValueError, KeyError, AttributeError) as error:
            raise DamagedEntryError(f"its record is damaged ({error})") from error
        for name, expected in files:
            path = place / name
            size = path.stat().st_size if path.is_file() else -1
            if size != expected["bytes"]:
                raise DamagedEntryError(f"{name} has {size} bytes, not {expected['bytes']}")
            if digest not in self._intact and sha256(path) != expected["sha256"]:
                raise DamagedEntryError(f"{name} has other contents than were written")
        self._intact.add(digest)
        return Entry(place, record)

    def remove(self, digest: str) -> None:
        """Removes an entry at once, then its files."""
        gone = self._partial / secrets.token_hex(8)
        with contextlib.suppress(OSError):
            self.place(digest).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        self._intact.discard(digest)

    def count_bytes(self) -> int:
        """Bytes in all entries. Also removes unfinished folders that a crash left more than a day ago."""
        for abandoned in self._partial.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - abandoned.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(abandoned, ignore_errors=True)
        return sum(size for _, size, _ in self._by_use())

    def shrink(self, most_bytes: int, *, spare_used: bool = True) -> int:
        """Removes least recently used entries until `most_bytes` are left, but with `spare_used` none that was asked
        for within the last ten minutes. Returns the bytes that are left."""
        entries = sorted(self._by_use())
        total, now = sum(size for _, size, _ in entries), time.time()
        for used, size, place in entries:
            if total <= most_bytes or (spare_used and now - used < _IN_USE_SECONDS):
                break
            self.remove(place.name)
            total -= size
        return total

    def _by_use(self) -> Iterator[tuple[float, int, Path]]:
        """The time when each entry was last asked for, its bytes and its folder."""
        for record in self.folder.glob(f"??/*/{RECORD}"):
            with contextlib.suppress(OSError):
                used = record.stat().st_mtime
                yield used, sum(path.stat().st_size for path in record.parent.iterdir()), record.parent


def sha256(path: Path) -> str:
    """The hash of a file's contents, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
