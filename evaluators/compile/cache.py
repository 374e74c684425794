"""What was compiled, by digest: immutable, shared by all builders and evaluators of a cluster, bounded in size.

An entry is a folder named by its digest, with its files and `record.json`, which says what they are. It appears whole,
by one rename, so writers need no lock and a crash leaves nothing that could be taken for an entry. Behind the local
folder may stand any file system that pyarrow knows, from which entries are copied when they are first asked for.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow import fs

from configs.schema import EvaluatorConfig
from evaluators.failures import InfraError

_log = logging.getLogger(__name__)
_RECORD = "record.json"
_IN_USE_SECONDS = 600.0  # what was asked for since then may be about to be loaded
_ABANDONED_SECONDS = 86400.0
_KEPT_SHARE = 0.8
_PUTS_BETWEEN_COUNTS = 100


@dataclass(frozen=True)
class Entry:
    """Files in `folder`, which nobody may change, and what was said of them."""

    folder: Path
    record: dict[str, Any]
    kept: bool = True


class _Damaged(Exception):
    """What an entry's record says is not what is there."""


class BuildCache:
    """Entries below a folder, of `max_bytes` in all; `remote` is the URI of a folder on another file system, or empty.

    Several processes may use the same folders. Least recently used entries go first, on the local file system alone.
    """

    def __init__(self, folder: Path, *, remote: str = "", max_bytes: int = 20 << 30) -> None:
        """Raises ValueError for a URI that pyarrow does not know."""
        self.folder = folder.absolute()  # a runner works elsewhere
        self.max_bytes = max_bytes
        self._partial = self.folder / "partial"
        self._partial.mkdir(parents=True, exist_ok=True)
        self._remote: tuple[fs.FileSystem, str] | None = fs.FileSystem.from_uri(remote) if remote else None
        self._intact: set[str] = set()
        self._bytes = 0  # as last counted, and what we have added since
        self._puts = 0

    @classmethod
    def of(cls, store: Path, config: EvaluatorConfig) -> BuildCache:
        """The cache in a run's store."""
        most = int(config.build_cache_gib * 2**30)
        return cls(store / "extensions", remote=config.build_cache, max_bytes=most)

    def get(self, digest: str) -> Entry | None:
        """The entry, or None. A damaged one is removed, and the log says so."""
        try:
            entry = self._read(digest) or self._fetched(digest)
        except _Damaged as error:
            _log.warning("build cache: %s is removed: %s", digest, error)
            self._remove(self._place(digest))
            self._intact.discard(digest)
            entry = self._fetched(digest)
        if entry:
            with contextlib.suppress(OSError):  # evicted by another process, or a read-only mount
                os.utime(entry.folder / _RECORD)
        return entry

    def put(self, digest: str, record: Mapping[str, Any], files: Mapping[str, Path]) -> Entry:
        """Copies the files into a new entry, or returns the one that is there. Raises InfraError where the disk is full
        even after half of the cache has been given up."""
        for share in (_KEPT_SHARE, 0.5, None):
            try:
                return self._put(digest, record, files)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or share is None:
                    raise InfraError(f"build cache: {error}") from error
                _log.warning("build cache: %s; making room", error)
                self._evict(round(share * self._count()), spare_used=False)
        raise AssertionError

    def _put(self, digest: str, record: Mapping[str, Any], files: Mapping[str, Path]) -> Entry:
        known = self.get(digest)
        if known:
            return known
        sizes = {name: path.stat().st_size for name, path in files.items()}
        about = {name: {"bytes": sizes[name], "sha256": _sha256(path)} for name, path in files.items()}
        whole = {**record, "files": about}
        with self._new_folder() as partial:
            for name, path in files.items():
                shutil.copyfile(path, partial / name)
                (partial / name).chmod(0o444)
            (partial / _RECORD).write_text(json.dumps(whole))
            self._publish(partial, digest)
        self._send(digest, whole)
        self._bytes += sum(sizes.values())
        self._puts += 1
        if self._bytes > self.max_bytes or self._puts % _PUTS_BETWEEN_COUNTS == 1:
            self._bytes = self._count()
            if self._bytes > self.max_bytes:
                self._evict(round(_KEPT_SHARE * self.max_bytes))
        entry = self.get(digest)
        if entry is None:
            raise InfraError(f"build cache: {digest} is gone as soon as it was written")
        return entry

    def share(self, digest: str) -> None:
        """Sends an entry to the other file system again, for those who did not find it there."""
        entry = self.get(digest)
        if entry:
            self._send(digest, entry.record)

    def _place(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest

    @contextlib.contextmanager
    def _new_folder(self) -> Iterator[Path]:
        """A folder on the way to an entry, gone afterwards unless it became one."""
        partial = self._partial / secrets.token_hex(8)
        partial.mkdir(parents=True)
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _publish(self, partial: Path, digest: str) -> None:
        """Makes a complete folder the entry, unless another process was first."""
        place = self._place(digest)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.rename(place)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise

    def _read(self, digest: str) -> Entry | None:
        """The local entry; its files are compared with its record when this process first asks for it."""
        place = self._place(digest)
        try:
            text = (place / _RECORD).read_bytes()
        except FileNotFoundError:
            if place.exists():
                raise _Damaged("it has no record") from None
            return None
        try:
            record = json.loads(text)
            about = record["files"].items()
        except (ValueError, KeyError, AttributeError) as error:
            raise _Damaged(f"its record is damaged ({error})") from error
        for name, one in about:
            path = place / name
            size = path.stat().st_size if path.is_file() else -1
            if size != one["bytes"]:
                raise _Damaged(f"{name} has {size} bytes, not {one['bytes']}")
            if digest not in self._intact and _sha256(path) != one["sha256"]:
                raise _Damaged(f"{name} has other contents than were written")
        self._intact.add(digest)
        return Entry(place, record)

    # The other file system

    def _fetched(self, digest: str) -> Entry | None:
        """The entry, copied from the other file system."""
        if not self._remote:
            return None
        system, base = self._remote
        source = f"{base}/{digest[:2]}/{digest}"
        try:
            with system.open_input_stream(f"{source}/{_RECORD}") as stream:
                text = stream.read().decode()
            with self._new_folder() as partial:
                for name in json.loads(text)["files"]:
                    with system.open_input_stream(f"{source}/{name}") as stream, open(partial / name, "wb") as file:
                        shutil.copyfileobj(stream, file)
                    (partial / name).chmod(0o444)
                (partial / _RECORD).write_text(text)
                self._publish(partial, digest)
            return self._read(digest)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, _Damaged) as error:
            _log.warning("build cache: %s at %s cannot be used: %s", digest, base, error)
            self._remove(self._place(digest))
            return None

    def _send(self, digest: str, record: Mapping[str, Any]) -> None:
        """Copies an entry to the other file system, its record last, by which readers know that it is complete."""
        if not self._remote:
            return
        system, base = self._remote
        place, target = self._place(digest), f"{base}/{digest[:2]}/{digest}"
        try:
            system.create_dir(target, recursive=True)
            for name in (*record["files"], _RECORD):
                partial = f"{target}/{name}.{secrets.token_hex(8)}"
                with system.open_output_stream(partial) as stream, open(place / name, "rb") as file:
                    shutil.copyfileobj(file, stream)
                system.move(partial, f"{target}/{name}")
        except OSError as error:  # the local entry serves; others will compile it for themselves
            _log.warning("build cache: %s does not reach %s: %s", digest, base, error)

    # Size

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """When each local entry was last asked for, its bytes and its folder."""
        for record in self.folder.glob(f"??/*/{_RECORD}"):
            with contextlib.suppress(OSError):
                used = record.stat().st_mtime
                yield used, sum(one.stat().st_size for one in record.parent.iterdir()), record.parent

    def _count(self) -> int:
        """Bytes in all entries. Removes what a crash left half-written a day ago."""
        for abandoned in self._partial.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - abandoned.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(abandoned, ignore_errors=True)
        return sum(size for _, size, _ in self._entries())

    def _evict(self, kept: int, *, spare_used: bool = True) -> None:
        """Removes least recently used entries until `kept` bytes are left."""
        entries = sorted(self._entries())
        total, now = sum(size for _, size, _ in entries), time.time()
        for used, size, place in entries:
            if total <= kept or (spare_used and now - used < _IN_USE_SECONDS):
                break
            self._remove(place)
            self._intact.discard(place.name)
            total -= size
        self._bytes = total

    def _remove(self, place: Path) -> None:
        """Removes an entry at once, then its files."""
        gone = self._partial / secrets.token_hex(8)
        with contextlib.suppress(OSError):
            place.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
