"""A checkpoint's files on the run's file system: who wrote them, and what each must be.

Ranks may stand on several hosts, and the driver on another one. So every rank writes the files that are its own
straight to the run's file system, and says what it wrote. A checkpoint is whole if all of them stand there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow.fs as pafs

from configs.addresses import without_login
from learners.errors import LearnerError
from learners.patience import Patience
from learners.room import telling_full_disk, telling_room

_CHUNK = 8 << 20
_REMEDY = "put a whole copy of it there, or go on from a bundle of the run"


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
    """The folder of a checkpoint: a path that all hosts share, or a URI of a file system that pyarrow knows.

    Reading and writing files is tried again for as long as `patience` lasts; then the methods raise StorageDown."""

    def __init__(
        self,
        place: str,
        patience: Patience | None = None,
        *,
        system: pafs.FileSystem | None = None,
        label: str = "",
    ) -> None:
        """`patience`: by default none. `system`: the file system of the path `place`, which needs no URI then, but a
        `label` for messages."""
        self._patience = patience or Patience()
        self._label = label or (without_login(place).split("?")[0] if "://" in place else place)
        if system is not None:
            self._system, self._base = system, place
        elif "://" in place:
            self._system, self._base = self._patience(
                "find the file system", self, lambda: pafs.FileSystem.from_uri(place)
            )
        else:
            self._system, self._base = pafs.LocalFileSystem(), place
        self._is_local = isinstance(self._system, pafs.LocalFileSystem)

    @contextmanager
    def new_files(self, rank: int, *, below: str = "") -> Iterator[tuple[Path, list[WrittenFile]]]:
        """An empty local folder, whose files are in the checkpoint's folder `below` when the block has ended, and the
        list that names them then.

        Raises LearnerError if this host does not see the checkpoint's folder, OSError if files cannot be written."""
        written: list[WrittenFile] = []
        if self._is_local and not self._patience("look for the folder", self, partial(_is_folder, self._base)):
            raise LearnerError(
                f"learner rank {rank} does not see the folder {self._base}: `root` must be a folder that all nodes "
                f"share, or a URI of an object store"
            )
        parent = self._base if self._is_local else None
        make = partial(tempfile.mkdtemp, prefix=f".rank-{rank}-", dir=parent)
        scratch = Path(self._patience("make a folder", self, make))
        try:
            with telling_full_disk(scratch.parent):
                yield scratch, written
            for file in describe(scratch):
                path = f"{below}/{file.path}" if below else file.path
                self._patience(f"write {path}", self, partial(self._put, scratch / file.path, path))
                written.append(WrittenFile(path, file.size, file.digest))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _put(self, file: Path, path: str) -> None:
        """Copies or moves a file to its place. May be done again."""
        target = f"{self._base}/{path}"
        self._system.create_dir(os.path.dirname(target), recursive=True)
        if self._is_local:
            if not file.exists() and os.path.isfile(target):
                return  # moved by an attempt that seemed to fail
            with open(file, "rb") as written:
                os.fsync(written.fileno())
            os.replace(file, target)
        else:
            with open(file, "rb") as source, self._system.open_output_stream(target) as stream:
                shutil.copyfileobj(source, stream, _CHUNK)

    def check(self, files: Sequence[WrittenFile]) -> None:
        """Reads files back. Raises LearnerError for one that is missing, or that is not what was written."""
        for file in files:
            self._patience(f"read {file.path}", self, partial(self._copy, file, None))

    def check_sizes(self, files: Sequence[WrittenFile]) -> None:
        """Looks for files without reading them. Raises LearnerError for one that is missing or has another size."""
        paths = [f"{self._base}/{file.path}" for file in files]
        infos = self._patience("look for its files", self, lambda: self._system.get_file_info(paths)) if files else []
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
                self._patience(f"read {file.path}", self, partial(self._copy, file, Path(name) / file.path))
            yield Path(name)

    def _copy(self, file: WrittenFile, to: Path | None) -> None:
        """Reads one file, checks it, and writes it `to` a path if one is given."""
        digest, size = _new_digest(), 0
        if to is not None:
            with telling_room(to.parent):
                to.parent.mkdir(parents=True, exist_ok=True)
        try:
            with (
                telling_room(to.parent) if to is not None else nullcontext(),
                self._system.open_input_stream(f"{self._base}/{file.path}") as stream,
                open(to or os.devnull, "wb") as copy,
            ):
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
                    size += len(chunk)
                    copy.write(chunk)
        except FileNotFoundError as error:
            raise LearnerError(f"{self}/{file.path}: missing; {_REMEDY}") from error
        if (size, digest.hexdigest()) != (file.size, file.digest):
            raise LearnerError(
                f"{self}/{file.path}: damaged, {size} bytes with another content than the {file.size} that were "
                f"written; {_REMEDY}"
            )

    def __str__(self) -> str:
        return self._label


def _is_folder(path: str) -> bool:
    """Unlike os.path.isdir, raises what is no answer to the question."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _describe(file: Path, path: str) -> WrittenFile:
    with open(file, "rb") as stream:
        digest = hashlib.file_digest(stream, _new_digest)
        return WrittenFile(path, stream.tell(), digest.hexdigest())


def _new_digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=16)
