"""Verdicts of earlier runs, which are reused instead of judging the same program again.

A verdict is reused only if it would be measured alike: the same task and sizes, preset, GPU and versions, judged as
strictly, under the guard, with every baseline that is asked for. A program that was doubted, timed out or failed is
judged anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from evaluators.records import DROP_IN, VERDICT_SCHEMA, Outcome, Verdict
from evaluators.stored.known import Key, KnownVerdicts, Place

REUSED_FROM = "taken_over"
"""The key in `Verdict.evaluator` of the name of the folder that the verdict was reused from."""
DEVICE, CONFIRMED_BY = "device", "confirmed_by"
"""Keys in `Verdict.evaluator` of the device that measured, and of the one that confirmed its speed-up."""
_LASTING = (Outcome.OK, Outcome.WRONG)
_PER_VERDICT = ("preset", "task_digest", "containment", DEVICE, CONFIRMED_BY)
_DECIDING = ("candidate", "outcome", "evaluator", "speedups", "strict")
_ROWS_AT_ONCE = 1024

_Row = tuple[int, dict[str, Any]]
"""The number of its row group, and what it holds."""


@dataclass(frozen=True)
class _File:
    """A Parquet file of verdicts. `origin`: the name of its run's folder."""

    origin: str
    filesystem: fs.FileSystem
    path: str

    def rows(self, wanted: Sequence[str], candidate: str = "", groups: Sequence[int] | None = None) -> Iterator[_Row]:
        """Rows with the number of their row group, of these columns as far as the file has them; with `candidate`
        those on that program alone."""
        with self.filesystem.open_input_file(self.path) as source:
            file = pq.ParquetFile(source)
            columns = [name for name in wanted if name in file.schema_arrow.names]
            for group in range(file.num_row_groups) if groups is None else groups:
                for batch in file.iter_batches(_ROWS_AT_ONCE, [group], columns):
                    found = batch.filter(pc.equal(batch["candidate"], candidate)) if candidate else batch
                    yield from ((group, row) for row in found.to_pylist())


class ReusableVerdicts:
    """The verdicts in `folders` that an evaluator with these `versions` and `baselines` may reuse, which judges as
    `strict` says.

    They are read when they are asked for. Which there are is read from the few columns that decide on it. A folder is a
    path, or a URI that pyarrow knows (`s3://...`), of a run directory or of what `warpsmith report RUN --publish
    FOLDER` wrote.
    """

    def __init__(
        self, folders: Sequence[str], versions: Mapping[str, str], baselines: Sequence[str], strict: str = DROP_IN
    ) -> None:
        """Raises FileNotFoundError for a folder without verdicts."""
        self._versions, self._baselines, self._strict = dict(versions), set(baselines), strict
        self._files = [file for folder in folders for file in _files_of(folder)]

    def known(self) -> KnownVerdicts:
        """All of them, by task digest, candidate digest, preset, and how strictly they were judged. If there are
        several on one program, that of the last folder counts."""
        known = KnownVerdicts(self._read)
        for number, file in enumerate(self._files):
            known.note(
                (key, f"{number}/{group}") for group, row in file.rows(_DECIDING) if (key := self._key(row)) is not None
            )
        return known

    def _read(self, place: Place, key: Key) -> Verdict | None:
        number, group = map(int, place.split("/"))
        file, last = self._files[number], None
        for _, row in file.rows(VERDICT_SCHEMA.names, candidate=key[1], groups=[group]):
            last = row if self._key(row) == key else last
        if last is None:
            return None
        verdict = Verdict.from_row(last)
        return replace(verdict, evaluator={REUSED_FROM: file.origin, **verdict.evaluator}, cost={})

    def _key(self, row: Mapping[str, Any]) -> Key | None:
        """The key of a verdict that may be reused; None for any other."""
        strict = row.get("strict") or DROP_IN
        if row["outcome"] not in _LASTING or strict != self._strict:
            return None
        settings = dict(row["evaluator"])
        about = {key: value for key, value in settings.items() if key not in (*_PER_VERDICT, REUSED_FROM)}
        if about != self._versions:
            return None
        if row["outcome"] == Outcome.OK and not self._baselines <= dict(row.get("speedups") or ()).keys():
            return None
        return settings["task_digest"], row["candidate"], settings["preset"], strict


def _files_of(folder: str) -> Iterator[_File]:
    import pyarrow.dataset as ds  # here: it brings Pandas along, and most evaluators read no verdicts

    system, path = fs.FileSystem.from_uri(folder) if "://" in folder else (fs.LocalFileSystem(), folder)
    published = f"{path}/verdicts.parquet"
    is_file = system.get_file_info(published).type == fs.FileType.File
    rows = ds.dataset(published if is_file else f"{path}/verdicts", filesystem=system, format="parquet")
    if missing := {"candidate", "outcome", "evaluator"} - set(rows.schema.names):
        raise FileNotFoundError(f"{folder} holds no verdicts: its rows have no {sorted(missing)[0]}")
    name = PurePosixPath(folder.rstrip("/")).name
    return (_File(name, system, file) for file in rows.files)
