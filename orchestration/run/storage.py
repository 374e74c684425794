"""Files below one folder of any pyarrow file system. Each is written whole or not at all.

On a local file system, a write goes to a hidden file, which is flushed to the disk and renamed. Object stores (S3, GCS)
show an object only when it is complete, so a plain write does the same. What fails is tried again for as long as the
folder's `Patience` lasts, so every operation here leaves the same if it is done twice. Nothing here knows what the
files mean.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from configs.addresses import without_login
from evaluators.records import digest_of
from learners.patience import Patience
from learners.room import telling_room

Parsed = TypeVar("Parsed")

_MOST_READS = 10  # of a file that is replaced all the time


@dataclass(frozen=True)
class Storage:
    """A folder: the path `base` on `filesystem`. All other paths here are relative to it, with slashes.

    `label` names the folder in messages. `address`: its URI, with options behind a question mark if it has any; empty
    for a local path. `patience`: how long to try again what fails; by default not at all. Every method raises OSError,
    after that time StorageDown.
    """

    filesystem: pafs.FileSystem
    base: str
    label: str
    address: str = ""
    patience: Patience = field(default_factory=Patience, compare=False, repr=False)

    @classmethod
    def at(cls, root: str | Path, name: str, patience: Patience | None = None) -> Storage:
        """The folder `name` below `root`, which is a local path or a URI."""
        text, patience = str(root), patience or Patience()
        folder, _, options = text.partition("?")
        folder = f"{folder.rstrip('/')}/{name}"
        if "://" not in text:
            base = os.path.abspath(os.path.expanduser(text))
            return cls(pafs.LocalFileSystem(), f"{base.rstrip('/')}/{name}", folder, patience=patience)
        label = without_login(folder)
        filesystem, base = patience("find the file system", label, lambda: pafs.FileSystem.from_uri(text))
        return cls(filesystem, f"{base.rstrip('/')}/{name}", label, f"{folder}?{options}".rstrip("?"), patience)

    def __str__(self) -> str:
        return self.label

    @property
    def local_path(self) -> Path | None:
        """The folder on the local file system, or None on a remote one."""
        return Path(self.base) if isinstance(self.filesystem, pafs.LocalFileSystem) else None

    def full(self, path: str) -> str:
        """The path on the file system, from a path relative to the folder."""
        return f"{self.base}/{path}" if path else self.base

    def uri(self, path: str) -> str:
        """The path as other processes open it: a local path, or a URI."""
        if self.local_path is not None:
            return self.full(path)
        folder, _, options = self.address.partition("?")
        return f"{folder}/{path}?{options}".rstrip("?")

    def _patiently(self, operation: str, path: str, attempt: Callable[[], Parsed]) -> Parsed:
        """Does something that may be done twice, and tries it again while it fails."""
        return self.patience(f"{operation} {path}".rstrip(), self, attempt)

    def _info(self, path: str) -> Any:
        return self._patiently("look for", path, lambda: self.filesystem.get_file_info(self.full(path)))

    def is_file(self, path: str) -> bool:
        return self._info(path).type is pafs.FileType.File

    def is_folder(self, path: str) -> bool:
        return self._info(path).type is pafs.FileType.Directory

    def read(self, path: str) -> bytes:
        """The content of a file, as one write left it. Raises FileNotFoundError."""

        def attempt() -> bytes:
            with self.filesystem.open_input_stream(self.full(path)) as stream:
                return bytes(stream.read())

        content = self._patiently("read", path, attempt)
        if self.local_path is not None:
            return content
        # pyarrow asks an object store for the size first, and gets as much of what has taken the object's place since.
        for _ in range(_MOST_READS):
            if self._info(path).size == len(content):
                break
            content = self._patiently("read", path, attempt)
        return content

    def parse(self, path: str, parse: Callable[[pa.NativeFile], Parsed]) -> Parsed:
        """What `parse` makes of a file, which it may read in parts, and again from the start. Raises
        FileNotFoundError."""

        def attempt() -> Parsed:
            with self.filesystem.open_input_file(self.full(path)) as file:
                return parse(file)

        return self._patiently("read", path, attempt)

    def write(self, path: str, content: bytes, *, if_still: Callable[[], object] = lambda: None) -> None:
        """Makes or replaces a file atomically and durably. `if_still` is called before each attempt, and what it raises
        keeps the file from being written."""
        write = self._write_object if self.local_path is None else _write_local

        def attempt() -> None:
            if_still()
            write(self.full(path), content)

        self._patiently("write", path, attempt)

    def _write_object(self, target: str, content: bytes) -> None:
        self.filesystem.create_dir(os.path.dirname(target), recursive=True)
        with self.filesystem.open_output_stream(target) as stream:
            stream.write(content)

    def delete(self, path: str) -> None:
        """Removes a file, or a folder with its content; nothing if there is none."""
        remove = self.filesystem.delete_dir if self.is_folder(path) else self.filesystem.delete_file

        def attempt() -> None:
            with suppress(FileNotFoundError):  # an attempt that seemed to fail may have removed it
                remove(self.full(path))

        self._patiently("remove", path, attempt)

    def _below(self, path: str, recursive: bool) -> list[Any]:
        selector = pafs.FileSelector(self.full(path), allow_not_found=True, recursive=recursive)
        infos = self._patiently("list", path, lambda: self.filesystem.get_file_info(selector))
        return [info for info in infos if not info.base_name.startswith(".")]

    def _relative(self, info: Any) -> str:
        return str(info.path)[len(self.base) + 1 :]

    def files(self, below: str, ending: str = "") -> list[str]:
        """Files at any depth below a folder, ordered by name, without hidden (half-written) ones."""
        infos = (info for info in self._below(below, recursive=True) if info.type is pafs.FileType.File)
        return sorted(path for path in map(self._relative, infos) if path.endswith(ending))

    def sizes(self, below: str, ending: str = "") -> dict[str, int]:
        """The files that `files` names, with their sizes in bytes."""
        infos = (info for info in self._below(below, recursive=True) if info.type is pafs.FileType.File)
        return {path: info.size for info in infos if (path := self._relative(info)).endswith(ending)}

    def times(self, below: str, ending: str = "") -> dict[str, int]:
        """The files that `files` names, with the times when they were written, in nanoseconds of the file system's
        clock."""
        infos = (info for info in self._below(below, recursive=True) if info.type is pafs.FileType.File)
        return {path: info.mtime_ns or 0 for info in infos if (path := self._relative(info)).endswith(ending)}

    def written_at(self, path: str) -> int:
        """When a file was written, in nanoseconds of the file system's clock; 0 if there is none."""
        return int(self._info(path).mtime_ns or 0)

    def folders(self, below: str) -> list[str]:
        """Folders directly below a folder, ordered by name, without hidden (half-written) ones."""
        infos = (info for info in self._below(below, recursive=False) if info.type is pafs.FileType.Directory)
        return sorted(map(self._relative, infos))

    def modified(self, path: str) -> tuple[int, list[str | int]]:
        """Sorts paths by the time when the file, or the newest file of the folder, was written.

        Paths of equal times are sorted by the numbers in their names.
        """
        infos = self._below(path, recursive=True) if self.is_folder(path) else [self._info(path)]
        newest = max((info.mtime_ns or 0 for info in infos if info.type is pafs.FileType.File), default=0)
        # A split at groups of digits alternates text and number, so any two such lists can be compared.
        return newest, [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", path)]

    def staging_folder(self, path: str) -> Path:
        """An empty local folder in which to prepare `path`. For a local path it is next to it, so a rename moves it."""
        if self.local_path is not None:
            folder = self.local_path / path
            staging = folder.with_name(f".{folder.name}.partial")
        else:
            staging = self._cache() / "staging" / path
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        return staging

    def publish_folder(self, local: Path, path: str) -> None:
        """Puts a local folder in the place of `path`: by a rename on a local file system, file by file on a remote one.

        So on a remote file system, a folder is known to be complete only if a later write (the run's state) points to
        it.
        """
        if self.local_path is None:
            self._patiently("write", path, lambda: self._upload(local, self.full(path)))
            shutil.rmtree(local, ignore_errors=True)
            return
        target = self.local_path / path
        self._patiently("write", path, lambda: _sync_all(local))
        self._patiently("write", path, lambda: _replace_folder(local, target))

    def _upload(self, local: Path, target: str) -> None:
        with suppress(FileNotFoundError):
            self.filesystem.delete_dir(target)
        pafs.copy_files(str(local), target, pafs.LocalFileSystem(), self.filesystem)

    def restore_folder(self, path: str) -> None:
        """Puts the old folder back if a kill came after `publish_folder` had moved it away and before it was done."""
        if self.local_path is not None:
            target = self.local_path / path
            retired = target.with_name(f".{target.name}.retired")
            if retired.is_dir() and not target.exists():
                os.replace(retired, target)

    def fetch_folder(self, path: str) -> Path:
        """A local folder with the content of `path`: the folder itself if it is local, else a downloaded copy."""
        if self.local_path is not None:
            return self.local_path / path
        local = self._cache() / "fetched" / path

        def attempt() -> None:
            shutil.rmtree(local, ignore_errors=True)
            with telling_room(local):  # a full disk is this one, not the file system that is read
                local.mkdir(parents=True)
                pafs.copy_files(self.full(path), str(local), self.filesystem, pafs.LocalFileSystem())

        self._patiently("read", path, attempt)
        return local

    def _cache(self) -> Path:
        """A private local folder for copies of files of a remote folder."""
        return Path(tempfile.gettempdir()) / f"warpsmith-{os.getuid()}" / digest_of(self.label)


def path_segment(name: str) -> str:
    """A name as one segment of a path, reversibly: `assess/base` becomes `assess%2Fbase`."""
    text = quote(name, safe=" +@,=()[]")
    return text.replace(".", "%2E") if not text.strip(".") else text


def parquet_bytes(table: pa.Table) -> bytes:
    """The content of a Parquet file that holds the table."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def _write_local(target: str, content: bytes) -> None:
    folder, name = os.path.split(target)
    os.makedirs(folder, exist_ok=True)
    partial = os.path.join(folder, f".{name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError:
        with suppress(OSError):
            os.unlink(partial)
        raise
    sync_folder(folder)


def _replace_folder(local: Path, target: Path) -> None:
    """Moves a folder to the place of another one. May be done again after any of its steps."""
    target.parent.mkdir(parents=True, exist_ok=True)
    retired = target.with_name(f".{target.name}.retired")
    if local.exists():
        if target.exists():
            shutil.rmtree(retired, ignore_errors=True)
            os.replace(target, retired)
        shutil.move(local, target)
    sync_folder(str(target.parent))
    shutil.rmtree(retired, ignore_errors=True)


def _sync_all(local: Path) -> None:
    for folder, _, names in os.walk(local):
        for name in names:
            _sync(os.path.join(folder, name))
        sync_folder(folder)


def _sync(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: str) -> None:
    """Makes renames in a folder durable (fsync of the folder)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
