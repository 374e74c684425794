"""The artifacts of a store: folders of compilers' caches, bounded in size, and a record beside each.

Several processes may use the same store. Whoever builds an artifact or runs its program holds the artifact's lock, and
what is locked is never evicted. An artifact that was evicted before its program could be judged has to be built again
(`Unbuilt`): without its caches the program would compile where it is measured, under a shorter limit.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from evaluators.compile.locks import held, locked, unless_locked
from evaluators.failures import Unbuilt
from evaluators.host.folders import remove_folder
from evaluators.host.quota import contents_of
from evaluators.host.whole_files import write_whole
from evaluators.records import Artifact

_log = logging.getLogger(__name__)
_BUILD_SECONDS, _USE_SECONDS = 900.0, 300.0  # for which a lock is waited for
_KEPT_SHARE = 0.8
_USES_BETWEEN_COUNTS = 100
_GONE, _IDENTITY = "gone", "identity"
_BLOCK_BYTES = 512  # the unit of `st_blocks`


class Artifacts:
    """The artifacts below a folder, of `max_bytes` in all. The least recently used go first.

    `identity`: of the folder; nodes that do not share a store have others.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder.absolute()  # runners have another current folder
        self.max_bytes = max_bytes
        self._gone = self.folder / _GONE
        self._gone.mkdir(parents=True, exist_ok=True)
        self.identity = self._identify()
        self._bytes = 0  # at the last count, plus what this process has used since
        self._uses = 0

    def place(self, digest: str) -> Path:
        """The folder of an artifact, whether it exists or not."""
        return self.folder / digest

    def read_record(self, artifact: Artifact) -> dict[str, Any] | None:
        """What a build wrote down, or None if there was none, or if it was evicted. One that is damaged counts as none,
        and the log says so."""
        try:
            record = msgspec.json.decode(_record(Path(artifact.path)).read_bytes(), type=dict[str, Any])
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            _log.warning("artifacts: %s is built again: its record is damaged (%s)", artifact.digest, error)
            return None
        _touch(_lock(Path(artifact.path)))
        return record

    def write_record(self, artifact: Artifact, record: dict[str, Any]) -> None:
        """Writes down the result of a build: from now on the artifact is there."""
        write_whole(_record(Path(artifact.path)), json.dumps(record))

    @contextmanager
    def building(self, artifact: Artifact) -> Iterator[None]:
        """Within this block no other process builds the artifact, or uses it, or evicts it."""
        with locked(self._lock_of(artifact), _BUILD_SECONDS):
            _touch(_lock(Path(artifact.path)))
            yield
            self._make_room(artifact)

    @contextmanager
    def used(self, artifact: Artifact | None) -> Iterator[None]:
        """Within this block a program may use its artifact (None: it has none), and no other process does: the folder
        belongs to one runner's user at a time. Raises Unbuilt if the artifact was evicted, and TimeoutError."""
        if artifact is None:
            yield
            return
        with held(self._lock_of(artifact), _USE_SECONDS):
            _touch(_lock(Path(artifact.path)))
            if artifact.store == self.identity and self.read_record(artifact) is None:
                raise Unbuilt(None)
            try:
                yield
            finally:
                self._make_room(artifact)

    def _lock_of(self, artifact: Artifact) -> Path:
        path = Path(artifact.path)
        path.parent.mkdir(parents=True, exist_ok=True)  # of a store that this node does not share
        return _lock(path)

    def _make_room(self, artifact: Artifact) -> None:
        """Evicts artifacts if there are too many bytes, now and then by a count, in between by what was used."""
        self._bytes += contents_of(Path(artifact.path)).amount.bytes
        self._uses += 1
        if self._bytes > self.max_bytes or self._uses % _USES_BETWEEN_COUNTS == 1:
            self._bytes = self.shrink(self.max_bytes)

    def shrink(self, most_bytes: int) -> int:
        """If there are more than `most_bytes`, evicts the least recently used artifacts until a fifth of that is free,
        but none that is in use. Returns the bytes that are left."""
        for left in self._gone.iterdir():  # by an evictor that was killed
            remove_folder(left)
        found = sorted(self._by_use())
        total = sum(size for _, size, _ in found)
        if total <= most_bytes:
            return total
        for used, size, digest in found:
            if total <= _KEPT_SHARE * most_bytes:
                break
            if self._evict(digest, used):
                total -= size
        return total

    def _evict(self, digest: str, used: float) -> bool:
        """Removes an artifact unless it is in use, or was used after the time `used`. Returns whether it did."""
        place, gone = self.place(digest), self._gone / secrets.token_hex(8)
        with unless_locked(_lock(place)) as is_free:
            if not is_free or _last_use(place) > used:
                return False
            try:
                for path in (_record(place), *self.folder.glob(f"{digest}.*.partial")):
                    path.unlink(missing_ok=True)
                with suppress(FileNotFoundError):
                    place.rename(gone)
                _lock(place).unlink()
            except OSError as error:  # it may be another user's
                _log.warning("artifacts: %s cannot be evicted: %s", digest, error)
                return False
        if gone.exists():
            remove_folder(gone)
        return True

    def _by_use(self) -> Iterator[tuple[float, int, str]]:
        """The time when each artifact was last used, its bytes and its digest."""
        sizes: dict[str, int] = defaultdict(int)
        with os.scandir(self.folder) as entries:
            for entry in entries:
                digest = entry.name.partition(".")[0]
                with suppress(FileNotFoundError):
                    if digest not in (_GONE, _IDENTITY):
                        sizes[digest] += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
        for digest, size in sizes.items():
            yield _last_use(self.place(digest)), size + contents_of(self.place(digest)).amount.bytes, digest

    def _identify(self) -> str:
        path = self.folder / _IDENTITY
        if not path.exists():
            own = self.folder / f"{_IDENTITY}.{secrets.token_hex(8)}"
            own.write_text(own.suffix[1:])
            with suppress(FileExistsError):
                os.link(own, path)
            own.unlink()
        return path.read_text()


def _record(place: Path) -> Path:
    return place.with_suffix(".json")


def _lock(place: Path) -> Path:
    return place.with_suffix(".lock")


def _touch(path: Path) -> None:
    with suppress(OSError):  # evicted by another process
        os.utime(path)


def _last_use(place: Path) -> float:
    """Seconds since the epoch; 0 for an artifact that nobody has locked yet."""
    with suppress(OSError):
        return _lock(place).stat().st_mtime
    return 0.0
