"""Snapshots that a committed state points to: the buffer and the learner's checkpoints.

A snapshot that a committed state points to is never changed. Only complete snapshots stand under their final paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from evaluators.records import digest_of
from orchestration.run.errors import RunDirectoryError
from orchestration.run.storage import Storage, parquet_bytes


class BufferSnapshots:
    """Snapshots of the buffer, one Parquet file each, in the folder `buffer` of a run."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def write(self, table: pa.Table, step: int) -> str:
        """Stores a snapshot and returns its relative path, for `RunState.buffer`.

        The name holds a digest of the content. So no snapshot that a committed state points to is ever overwritten.
        """
        content = parquet_bytes(table)
        path = f"buffer/step-{step:06d}-{digest_of(content.hex())[:8]}.parquet"
        self._storage.write(path, content)
        return path

    def read(self, path: str) -> pa.Table:
        """The snapshot at a path that `write` returned, with its schema's metadata. Raises RunDirectoryError."""
        if not self._storage.is_file(path):
            raise RunDirectoryError(
                f"{self._storage}/{path}: no such buffer snapshot; resume from a complete run directory"
            )
        return pq.read_table(pa.BufferReader(self._storage.read(path)))

    def prune(self, keep: int, protect: Sequence[str | None] = ()) -> None:
        """Removes all snapshots except the newest `keep` and those in `protect`."""
        paths = sorted(self._storage.files("buffer", ".parquet"), key=self._storage.modified)
        for path in _outdated(paths, keep, protect):
            self._storage.delete(path)


class Checkpoints:
    """The learner's checkpoints, one folder each, in the folder `checkpoints` of a run."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def new_folder(self, name: str) -> Path:
        """An empty local folder to write the checkpoint `name` into. It counts only after `publish`."""
        return self._storage.staging_folder(f"checkpoints/{name}")

    def publish(self, local: Path, name: str) -> str:
        """Moves a written checkpoint to its place, or copies it to a remote file system.

        Returns its relative path, for `RunState.checkpoint`. Only a complete checkpoint ever stands under that path.
        """
        path = f"checkpoints/{name}"
        self._storage.publish_folder(local, path)
        return path

    def fetch(self, path: str) -> Path:
        """A local folder with the checkpoint at a path that `publish` returned. Downloads a remote checkpoint.

        Raises RunDirectoryError if there is none.
        """
        self._storage.restore_folder(path)
        if not self._storage.is_folder(path):
            raise RunDirectoryError(f"{self._storage}/{path}: no such checkpoint; resume from a complete run directory")
        return self._storage.fetch_folder(path)

    def paths(self) -> list[str]:
        """The relative paths of the published checkpoints, oldest first."""
        return sorted(self._storage.folders("checkpoints"), key=self._storage.modified)

    def prune(self, keep: int, protect: Sequence[str | None] = ()) -> list[str]:
        """Removes all checkpoints except the newest `keep` and those in `protect`. Returns the removed paths."""
        removed = _outdated(self.paths(), keep, protect)
        for path in removed:
            self._storage.delete(path)
        return removed


def _outdated(paths: Sequence[str], keep: int, protect: Sequence[str | None]) -> list[str]:
    """Of paths ordered from old to new, those that are neither among the newest `keep` nor in `protect`."""
    newest = paths[-keep:] if keep else []
    return [path for path in paths if path not in newest and path not in protect]
