"""The build cache: compiled extensions by digest, shared by all builders and evaluators of a cluster, bounded in size.

Entries never change once they are written (`evaluators.compile.entries`). Another file system may stand behind the
local folder; entries are copied from it when they are first asked for (`evaluators.compile.remote_entries`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs.schema import EvaluatorConfig
from evaluators.compile.entries import RECORD, DamagedEntryError, Entry, LocalEntries, sha256
from evaluators.compile.remote_entries import RemoteEntries
from evaluators.failures import InfraError

_log = logging.getLogger(__name__)
_KEPT_SHARE = 0.8
_PUTS_BETWEEN_COUNTS = 100


class BuildCache:
    """Entries below a folder, of `max_bytes` in all; `remote` is the URI of a folder on another file system, or empty.

    Several processes may use the same folders. Least recently used entries go first, on the local file system alone.
    """

    def __init__(self, folder: Path, *, remote: str = "", max_bytes: int = 20 << 30) -> None:
        """Raises ValueError for a URI that pyarrow does not know."""
        self.folder = folder.absolute()  # runners have another current folder
        self.max_bytes = max_bytes
        self._local = LocalEntries(self.folder)
        self._remote = RemoteEntries(remote) if remote else None
        self._bytes = 0  # at the last count, plus what this process has added since
        self._puts = 0

    @classmethod
    def of(cls, store: Path, config: EvaluatorConfig) -> BuildCache:
        """The cache in a run's store."""
        most = int(config.build_cache_gib * 2**30)
        return cls(store / "extensions", remote=config.build_cache, max_bytes=most)

    def get(self, digest: str) -> Entry | None:
        """The entry, or None. A damaged entry is removed, and the log says so."""
        try:
            entry = self._local.read(digest) or self._fetch(digest)
        except DamagedEntryError as error:
            _log.warning("build cache: %s is removed: %s", digest, error)
            self._local.remove(digest)
            entry = self._fetch(digest)
        if entry:
            with contextlib.suppress(OSError):  # evicted by another process, or a read-only mount
                os.utime(entry.folder / RECORD)
        return entry

    def put(self, digest: str, record: Mapping[str, Any], files: Mapping[str, Path]) -> Entry:
        """Copies the files into a new entry, or returns the entry that exists. If the disk is full, removes a fifth of
        the cache, then half of it. Raises InfraError if the disk is still full, and for any other OSError."""
        for share in (_KEPT_SHARE, 0.5, None):
            try:
                return self._put(digest, record, files)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or share is None:
                    raise InfraError(f"build cache: {error}") from error
                _log.warning("build cache: %s; making room", error)
                self._bytes = self._local.shrink(round(share * self._local.count_bytes()), spare_used=False)
        raise AssertionError

    def _put(self, digest: str, record: Mapping[str, Any], files: Mapping[str, Path]) -> Entry:
        existing = self.get(digest)
        if existing:
            return existing
        sizes = {name: path.stat().st_size for name, path in files.items()}
        described = {name: {"bytes": sizes[name], "sha256": sha256(path)} for name, path in files.items()}
        whole = {**record, "files": described}
        with self._local.new_folder() as partial:
            for name, path in files.items():
                shutil.copyfile(path, partial / name)
                (partial / name).chmod(0o444)
            (partial / RECORD).write_text(json.dumps(whole))
            self._local.publish(partial, digest)
        self._upload(digest, whole)
        self._bytes += sum(sizes.values())
        self._puts += 1
        if self._bytes > self.max_bytes or self._puts % _PUTS_BETWEEN_COUNTS == 1:
            self._bytes = self._local.count_bytes()
            if self._bytes > self.max_bytes:
                self._bytes = self._local.shrink(round(_KEPT_SHARE * self.max_bytes))
        entry = self.get(digest)
        if entry is None:
            raise InfraError(f"build cache: {digest} is gone as soon as it was written")
        return entry

    def share(self, digest: str) -> None:
        """Copies an entry to the other file system again, for nodes that did not find it there."""
        entry = self.get(digest)
        if entry:
            self._upload(digest, entry.record)

    def _fetch(self, digest: str) -> Entry | None:
        """The entry, copied from the other file system, or None."""
        if not self._remote:
            return None
        try:
            record = self._remote.read_record(digest)
            with self._local.new_folder() as partial:
                self._remote.download(digest, record, partial)
                self._local.publish(partial, digest)
            return self._local.read(digest)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, DamagedEntryError) as error:
            _log.warning("build cache: %s at %s cannot be used: %s", digest, self._remote.base, error)
            self._local.remove(digest)
            return None

    def _upload(self, digest: str, record: Mapping[str, Any]) -> None:
        """Copies an entry to the other file system. If that fails, the local entry serves this node, and others
        compile it for themselves."""
        if not self._remote:
            return
        try:
            self._remote.upload(digest, record, self._local.place(digest))
        except OSError as error:
            _log.warning("build cache: %s does not reach %s: %s", digest, self._remote.base, error)
