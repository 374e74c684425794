"""Programs with our verdicts as rows of a Parquet file: what `warpsmith kernelbench judge` writes, and leaderboards
read. A row is a verdict's, with the program, where it is from, and what KernelBench found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from evaluators.host.whole_files import write_whole
from evaluators.records import VERDICT_SCHEMA, Verdict
from orchestration.kernelbench.layout import LayoutError, Result
from orchestration.run.storage import parquet_bytes

_TEXT = pa.string()
_RESULT = pa.struct(
    [("compiled", pa.bool_()), ("correct", pa.bool_()), ("milliseconds", pa.float64()), ("hardware", _TEXT)]
)
JUDGED_SCHEMA = pa.schema(
    [*VERDICT_SCHEMA, ("origin", _TEXT), ("sample", pa.int64()), ("program", _TEXT), ("theirs", _RESULT)]
)


@dataclass(frozen=True)
class Judged:
    """A program with our verdict. `origin`: the run or file that it is from. `theirs`: KernelBench's result, if any."""

    origin: str
    sample: int
    program: str
    verdict: Verdict
    theirs: Result | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What there is one row of in a file."""
        return self.origin, self.verdict.task, self.sample


def write_judged(path: Path, rows: Iterable[Judged]) -> None:
    """Replaces the file at once, so that a kill leaves the old one or the new one. Raises OSError."""
    table = pa.Table.from_pylist(
        [
            {
                **each.verdict.to_row(),
                "origin": each.origin,
                "sample": each.sample,
                # A program may hold half a surrogate pair, which cannot be written as UTF-8.
                "program": each.program.encode("utf-8", "replace").decode(),
                "theirs": asdict(each.theirs) if each.theirs else None,
            }
            for each in rows
        ],
        schema=JUDGED_SCHEMA,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, parquet_bytes(table))


def read_judged(path: Path) -> list[Judged]:
    """The rows of a file. Verdicts without programs are read, too: theirs are empty. Raises LayoutError."""
    try:
        rows = pq.read_table(path).to_pylist()
        return [_judged(row, path) for row in rows]
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise LayoutError(f"{path}: no rows of verdicts ({' '.join(str(error).split())[:160]})") from error


def _judged(row: dict[str, object], path: Path) -> Judged:
    of_verdict = {name: row[name] for name in VERDICT_SCHEMA.names if name in row}
    theirs = row.get("theirs")
    return Judged(
        str(row.get("origin") or path.parent.name),
        int(str(row.get("sample") or 0)),
        str(row.get("program") or ""),
        Verdict.from_row(of_verdict),
        Result(**theirs) if isinstance(theirs, dict) else None,
    )
