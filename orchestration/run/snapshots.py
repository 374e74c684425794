"""Snapshots that a committed state points to: the buffer, responses sampled ahead, and the learner's checkpoints.

A snapshot that a committed state points to is never changed. Only complete snapshots stand under their final paths.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from evaluators.records import digest_of
from learners.checkpoint_files import CheckpointFolder, WrittenFile, describe
from orchestration.run.errors import RunDirectoryError
from orchestration.run.retention import outdated
from orchestration.run.storage import Storage, parquet_bytes

EXPORT = "policy"
"""The folder of a checkpoint that has the policy in Hugging Face's form."""

LISTING = "files.json"
"""The file of a checkpoint that names the others, with the size and the digest of each."""


class TableSnapshots:
    """Snapshots of one table, a Parquet file each, in a folder of a run: `buffer`, or `ahead`."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage, self._folder = storage, folder

    def write(self, table: pa.Table, step: int) -> str:
        """Stores a snapshot and returns its relative path, for `RunState`.

        The name holds a digest of the content. So no snapshot that a committed state points to is ever overwritten.
        """
        content = parquet_bytes(table)
        path = f"{self._folder}/step-{step:06d}-{digest_of(content.hex())[:8]}.parquet"
        self._storage.write(path, content)
        return path

    def read(self, path: str) -> pa.Table:
        """The snapshot at a path that `write` returned, with its schema's metadata. Raises RunDirectoryError."""
        if not self._storage.is_file(path):
            raise RunDirectoryError(
                f"{self._storage}/{path}: no such {self._folder} snapshot; resume from a complete run directory"
            )
        return pq.read_table(pa.BufferReader(self._storage.read(path)))

    def prune(self, last: int, committed: str | None = None, besides: Collection[str] = ()) -> None:
        """Removes all snapshots but the committed one, the newest `last` others, and those in `besides`."""
        paths = sorted(self._storage.files(self._folder, ".parquet"), key=self._storage.modified)
        for path in outdated(paths, last, committed, besides):
            self._storage.delete(path)


@dataclass(frozen=True)
class Draft:
    """A checkpoint that is being written. `place`: its folder for the learner, a path or a URI. `path`: where it will
    stand, relative to the run directory."""

    place: str
    path: str


class Checkpoints:
    """The learner's checkpoints, one folder each, in the folder `checkpoints` of a run.

    Beside the learner's files stands their `LISTING`.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def begin(self, name: str) -> Draft:
        """The folder for the checkpoint `name`. It counts only after `commit`.

        On a local file system it is a hidden one, which is renamed. Elsewhere nothing can be renamed, so it is the
        final one; its name gets a number if it is taken, since a committed state may point to that."""
        path = f"checkpoints/{name}"
        if self._storage.local_path is not None:
            return Draft(str(self._storage.staging_folder(path)), path)
        taken = set(self._storage.folders("checkpoints"))
        numbered = (f"{path}.{number}" for number in itertools.count(2))
        free = next(one for one in itertools.chain([path], numbered) if one not in taken)
        return Draft(self._storage.uri(free), free)

    def commit(self, draft: Draft, files: Sequence[WrittenFile]) -> str:
        """Makes a draft a checkpoint, if the driver, too, sees all `files` that the learner wrote.

        Returns its relative path, for `RunState.checkpoint`. Raises LearnerError for a file that is not there."""
        storage = self._storage
        at = storage.full(draft.path) if storage.local_path is None else draft.place
        label = f"{storage}/{draft.path}" if storage.local_path is None else draft.place
        CheckpointFolder(at, storage.patience, system=storage.filesystem, label=label).check_sizes(files)
        listing = json.dumps([asdict(file) for file in files], indent=1).encode()
        if storage.local_path is None:
            storage.write(f"{draft.path}/{LISTING}", listing)
        else:
            storage.patience(f"write {LISTING}", storage, lambda: (Path(at) / LISTING).write_bytes(listing))
            storage.publish_folder(Path(at), draft.path)
        return draft.path

    def discard(self, draft: Draft) -> None:
        """Removes a draft that will not be a checkpoint, as far as the file system lets it."""
        if self._storage.local_path is not None:
            shutil.rmtree(draft.place, ignore_errors=True)
        else:
            with suppress(OSError):
                self._storage.delete(draft.path)

    def locate(self, path: str) -> tuple[str, list[WrittenFile]]:
        """Where the learner finds the checkpoint at a path that `commit` returned, and the learner's files in it. An
        earlier version's checkpoints have no list; where they are not local they are downloaded here.

        Raises RunDirectoryError if there is none."""
        self._storage.restore_folder(path)
        if not self._storage.is_file(f"{path}/{LISTING}"):
            return str(self.fetch(path)), []
        files = [WrittenFile(**row) for row in json.loads(self._storage.read(f"{path}/{LISTING}"))]
        return self._storage.uri(path), [file for file in files if not file.path.startswith(f"{EXPORT}/")]

    def new_folder(self, name: str) -> Path:
        """An empty local folder to write the checkpoint `name` into. It counts only after `publish`."""
        return self._storage.staging_folder(f"checkpoints/{name}")

    def publish(self, local: Path, name: str) -> str:
        """Moves a checkpoint that was written to a local folder to its place, or copies it to a remote file system.

        Returns its relative path, for `RunState.checkpoint`. Only a complete checkpoint ever stands under that path.
        """
        path = f"checkpoints/{name}"
        (local / LISTING).unlink(missing_ok=True)
        (local / LISTING).write_text(json.dumps([asdict(file) for file in describe(local)], indent=1))
        self._storage.publish_folder(local, path)
        return path

    def fetch(self, path: str) -> Path:
        """A local folder with the checkpoint at a path that `commit` or `publish` returned. Downloads a remote one.

        Raises RunDirectoryError if there is none.
        """
        self._storage.restore_folder(path)
        if not self._storage.is_folder(path):
            raise RunDirectoryError(f"{self._storage}/{path}: no such checkpoint; resume from a complete run directory")
        return self._storage.fetch_folder(path)

    def paths(self) -> list[str]:
        """The relative paths of the published checkpoints, oldest first."""
        return sorted(self._storage.folders("checkpoints"), key=self._storage.modified)

    def prune(self, last: int, committed: str | None = None, besides: Collection[str] = ()) -> list[str]:
        """Removes all checkpoints but the committed one, the newest `last` others, and those in `besides`. Returns the
        removed paths."""
        removed = outdated(self.paths(), last, committed, besides)
        for path in removed:
            self._storage.delete(path)
        return removed
