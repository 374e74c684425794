"""Copies of the build cache's entries on another file system, through which the nodes of a cluster share them."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyarrow import fs

from evaluators.compile.entries import RECORD


class RemoteEntries:
    """Entries below a folder of any file system that pyarrow knows."""

    def __init__(self, uri: str) -> None:
        """Raises ValueError for a URI that pyarrow does not know."""
        self._system, self.base = fs.FileSystem.from_uri(uri)

    def _place(self, digest: str) -> str:
        return f"{self.base}/{digest[:2]}/{digest}"

    def read_record(self, digest: str) -> str:
        """The text of an entry's record. Raises FileNotFoundError without the entry, else OSError."""
        with self._system.open_input_stream(f"{self._place(digest)}/{RECORD}") as stream:
            return str(stream.read().decode())

    def download(self, digest: str, record: str, folder: Path) -> None:
        """Copies an entry's files and its `record` into a local folder. Raises OSError, and ValueError or KeyError for
        a record that is damaged."""
        for name in json.loads(record)["files"]:
            source = f"{self._place(digest)}/{name}"
            with self._system.open_input_stream(source) as stream, open(folder / name, "wb") as file:
                shutil.copyfileobj(stream, file)
            (folder / name).chmod(0o444)
        (folder / RECORD).write_text(record)

    def upload(self, digest: str, record: Mapping[str, Any], folder: Path) -> None:
        """Copies an entry there. Its record comes last, since readers take an entry with a record for complete. Raises
        OSError."""
        target = self._place(digest)
        self._system.create_dir(target, recursive=True)
        for name in (*record["files"], RECORD):
            partial = f"{target}/{name}.{secrets.token_hex(8)}"
            with self._system.open_output_stream(partial) as stream, open(folder / name, "rb") as file:
                shutil.copyfileobj(file, stream)
            self._system.move(partial, f"{target}/{name}")
