"""A file system whose operations fail: at random with a seed, always, or when a test says so."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

Fault = Callable[[str], "OSError | None"]
"""The error of the operation that is about to be done, or whose answer is about to be given, by its name."""

_PASSING = (errno.EIO, errno.ETIMEDOUT, errno.ECONNRESET, None)


def remote(folder: object) -> pafs.FileSystem:
    """The local file system below a folder, which nothing takes for a local one. Modification times are its own."""
    return pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem())


def flaky(system: pafs.FileSystem, fault: Fault) -> pafs.FileSystem:
    """The file system, with the faults of `fault` before each operation and, since answers are lost as well, after."""
    return pafs.PyFileSystem(_Handler(system, fault))


class RandomFaults:
    """About one in `every` operations fails, with errors that pass, `in_a_row` times at most."""

    def __init__(self, seed: int, every: float = 4.0, in_a_row: int = 3) -> None:
        self._random = random.Random(seed)
        self._share, self._in_a_row, self._row = 1.0 / every, in_a_row, 0
        self.count = 0

    def __call__(self, operation: str) -> OSError | None:
        self._row = self._row + 1 if self._random.random() < self._share else 0
        if not 0 < self._row <= self._in_a_row:
            return None
        self.count += 1
        number = self._random.choice(_PASSING)
        text = f"injected at {operation}"
        return OSError(number, text) if number is not None else OSError(f"AWS Error NETWORK_CONNECTION: {text}")


def always(number: int) -> Fault:
    """Nothing works."""
    return lambda operation: OSError(number, os.strerror(number))


class _Stream:
    """A file object whose calls fail, as they do on a network."""

    def __init__(self, file: pa.NativeFile, fault: Fault) -> None:
        self._file, self._fault = file, fault

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def close(self) -> None:
        self._done("close", self._file.close)

    def read(self, size: int = -1) -> bytes:
        return self._done("read", lambda: bytes(self._file.read(size if size >= 0 else None)))

    def write(self, content: bytes) -> int:
        return self._done("write", lambda: int(self._file.write(content)))

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def flush(self) -> None:
        self._file.flush()

    def readable(self) -> bool:
        return bool(self._file.readable())

    def writable(self) -> bool:
        return bool(self._file.writable())

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def _done(self, operation: str, work: Callable[[], Any]) -> Any:
        if error := self._fault(operation):
            raise error
        return work()


class _Handler(pafs.FileSystemHandler):
    """Passes every operation on to a file system, and fails as told."""

    def __init__(self, system: pafs.FileSystem, fault: Fault) -> None:
        self._system, self._fault = system, fault

    def _done(self, operation: str, *arguments: Any, **options: Any) -> Any:
        if error := self._fault(operation):
            raise error
        result = getattr(self._system, operation)(*arguments, **options)
        if error := self._fault(operation):
            raise error
        return result

    def get_type_name(self) -> str:
        return "flaky"

    def normalize_path(self, path: str) -> str:
        return str(self._system.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> Any:
        return self._done("get_file_info", paths)

    def get_file_info_selector(self, selector: pafs.FileSelector) -> Any:
        return self._done("get_file_info", selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._done("create_dir", path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self._done("delete_dir", path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self._done("delete_dir_contents", path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self._done("delete_file", path)

    def move(self, source: str, target: str) -> None:
        self._done("move", source, target)

    def copy_file(self, source: str, target: str) -> None:
        self._done("copy_file", source, target)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(_Stream(self._done("open_input_stream", path), self._fault), mode="r")

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(_Stream(self._done("open_input_file", path), self._fault), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        return pa.PythonFile(_Stream(self._done("open_output_stream", path), self._fault), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        raise NotImplementedError
