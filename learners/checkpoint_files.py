"""A checkpoint's files on the run's file system: who wrote them, and what each must be.

Ranks may stand on several hosts, and the driver on another one. So every rank writes the files that are its own
straight to the run's file system, and says what it wrote. A checkpoint is whole if all of them stand there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

from configs.addresses import without_login
from learners.errors import LearnerError

_CHUNK = 8 << 20


@dataclass(frozen=True)
class WrittenFile:
    """A file as it was written. `path` is relative to the checkpoint, `digest` is BLAKE2b of 16 bytes, in hex."""

    path: str
    size: int
    digest: str


def describe(folder: Path) -> list[WrittenFile]:
    """All files below a local folder, ordered by path."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [_describe(path, path.relative_to(folder).as_posix()) for path in found]


class CheckpointFolder:
    """The folder of a checkpoint: a path that all hosts share, or a URI of a file system that pyarrow knows."""

    def __init__(self, place: str) -> None:
        self.place = place
        if "://" in place:
            self._system, self._base = pafs.FileSystem.from_uri(place)
        else:
            self._system, self._base = pafs.LocalFileSystem(), place
        self._is_local = isinstance(self._system, pafs.LocalFileSystem)

    @contextmanager
    def new_files(self, rank: int, *, below: str = "") -> Iterator[tuple[Path, list[WrittenFile]]]:
        """An empty local folder, whose files are in the checkpoint's folder `below` when the block has ended, and the
        list that names them then.

        Raises LearnerError if this host does not see the checkpoint's folder, OSError if files cannot be written."""
        written: list[WrittenFile] = []
        if self._is_local and not os.path.isdir(self._base):
            raise LearnerError(
                f"learner rank {rank} does not see the folder {self._base}: `root` must be a folder that all nodes "
                f"share, or a URI of an object store"
            )
        parent = self._base if self._is_local else None
        scratch = Path(tempfile.mkdtemp(prefix=f".rank-{rank}-", dir=parent))
        try:
            yield scratch, written
            for file in describe(scratch):
                path = f"{below}/{file.path}" if below else file.path
                self._put(scratch / file.path, path)
                written.append(WrittenFile(path, file.size, file.digest))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _put(self, file: Path, path: str) -> None:
        target = f"{self._base}/{path}"
        self._system.create_dir(os.path.dirname(target), recursive=True)
        if self._is_local:
            with open(file, "rb") as written:
                os.fsync(written.fileno())
            os.replace(file, target)
        else:
            with open(file, "rb") as source, self._system.open_output_stream(target) as stream:
                shutil.copyfileobj(source, stream, _CHUNK)

    def check(self, files: Sequence[WrittenFile]) -> None:
        """Reads files back. Raises LearnerError for one that is missing, or that is not what was written."""
        for file in files:
            self._copy(file, None)

    def check_sizes(self, files: Sequence[WrittenFile]) -> None:
        """Looks for files without reading them. Raises LearnerError for one that is missing or has another size."""
        infos = self._system.get_file_info([f"{self._base}/{file.path}" for file in files]) if files else []
        for file, info in zip(files, infos, strict=True):
            if info.type is not pafs.FileType.File:
                raise LearnerError(f"{self}/{file.path}: a learner rank wrote it, and it is not there")
            if info.size != file.size:
                raise LearnerError(f"{self}/{file.path}: {info.size} bytes, and {file.size} were written")

    @contextmanager
    def local_copy(self, files: Sequence[WrittenFile], share: slice = slice(None)) -> Iterator[Path]:
        """A local folder with the files: the folder itself, or a copy for as long as the block lasts.

        Every file that is copied is checked; of others those of `share`, so that ranks can divide them. Raises
        LearnerError for one that is missing or damaged."""
        if self._is_local:
            self.check(files[share])
            yield Path(self._base)
            return
        with tempfile.TemporaryDirectory(prefix="warpsmith-checkpoint-") as name:
            for file in files:
                self._copy(file, Path(name) / file.path)
            yield Path(name)

    def _copy(self, file: WrittenFile, to: Path | None) -> None:
        """Reads one file, checks it, and writes it `to` a path if one is given."""
        digest, size = _new_digest(), 0
        if to is not None:
            to.parent.mkdir(parents=True, exist_ok=True)
        try:
            with (
                self._system.open_input_stream(f"{self._base}/{file.path}") as stream,
                open(to or os.devnull, "wb") as copy,
            ):
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
                    size += len(chunk)
                    copy.write(chunk)
        except FileNotFoundError as error:
            raise LearnerError(f"{self}/{file.path}: missing; the checkpoint is not whole") from error
        if (size, digest.hexdigest()) != (file.size, file.digest):
            raise LearnerError(
                f"{self}/{file.path}: damaged, {size} bytes with another content than the {file.size} that were written"
            )

    def __str__(self) -> str:
        return without_login(self.place).split("?")[0] if "://" in self.place else self.place


def _describe(file: Path, path: str) -> WrittenFile:
    with open(file, "rb") as stream:
        digest = hashlib.file_digest(stream, _new_digest)
        return WrittenFile(path, stream.tell(), digest.hexdigest())


def _new_digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=16)
