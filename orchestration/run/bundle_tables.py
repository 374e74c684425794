"""A run's tables in a bundle: the rows of many steps in few Parquet files.

Columns that must travel stand apart from those that may stay behind.
The rows of one step stay together and in their order, so that columns of several files can be put side by side again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evaluators.records import CANDIDATE_SCHEMA, VERDICT_SCHEMA
from learners.records import ROLLOUT_SCHEMA
from orchestration.run.directory import RunDirectory
from orchestration.run.state import CONSTANT, RunState, phase_key
from orchestration.run.steps import METRIC_SCHEMA, StepTable

ASSESSMENT = "assess/"
_CHUNK_ROWS = 1024
_LEVEL = 15  # of zstd
_TEXTS = ("prompt", "response", "prompt_ids", "response_ids", "logprobs")
_EVIDENCE = ("correctness", "timing", "cost")

Step = tuple[str, int]
"""Phase and step."""


@dataclass(frozen=True)
class Columns:
    """Some columns of a table. `note` says what they hold, for people."""

    table: str
    name: str
    columns: tuple[str, ...]
    note: str


def _without(schema: pa.Schema, left_out: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in schema.names if name not in left_out)


# The keys of verdicts hold all that a later step or the report reads, so that no program is judged twice.
REQUIRED = (
    Columns("metrics", "all", tuple(METRIC_SCHEMA.names), "metrics of all steps"),
    Columns("samples", "figures", _without(ROLLOUT_SCHEMA, _TEXTS), "samples without texts"),
    Columns("verdicts", "keys", _without(VERDICT_SCHEMA, _EVIDENCE), "verdicts: program, outcome, speed-ups"),
)
OPTIONAL = (
    Columns("verdicts", "evidence", _EVIDENCE, "verdicts: timing, errors, cost"),
    Columns("candidates", "all", tuple(CANDIDATE_SCHEMA.names), "programs"),
    Columns("samples", "texts", _TEXTS, "sample texts: prompts, responses, tokens"),
)
"""What may stay behind, in the order in which it is put in: what comes last is left out first."""


class Committed:
    """Which steps of a run belong to a committed state, and how old they are."""

    def __init__(self, state: RunState) -> None:
        completed = list(state.extra.get("completed", ()))
        self._assessed = set(state.extra.get("assessed", ()))
        self._state = state
        current = phase_key(state.cycle, state.phase) if state.phase else ""
        self._current = current if current not in completed else ""
        order = ["base", *completed, *([self._current] if self._current else [])]
        self._order = {key: index for index, key in enumerate(order)}

    def has(self, step: Step) -> bool:
        """Whether the state holds the step; a resume makes the others again."""
        phase, number = step
        if phase.startswith((ASSESSMENT, CONSTANT)):
            return phase.removeprefix(ASSESSMENT) in self._assessed
        return phase in self._order and (phase != self._current or number < self._state.step)

    def age(self, step: Step) -> tuple[int, bool, int]:
        """Sorts steps from old to new. The assessment of a phase comes after its steps."""
        phase, number = step
        key = phase.removeprefix(ASSESSMENT)
        return self._order.get(key, len(self._order)), phase.startswith(ASSESSMENT), number


def tables_of(run: RunDirectory) -> Mapping[str, StepTable[Any]]:
    """The tables of a run by name."""
    return {"metrics": run.metrics, "samples": run.samples, "verdicts": run.verdicts, "candidates": run.candidates}


def path_of(part: Columns, number: int) -> str:
    """The path of a file of some columns in a bundle."""
    return f"tables/{part.table}/{part.name}-{number:04d}.parquet"


def one_file(table: StepTable[Any], steps: Sequence[Step], columns: Sequence[str]) -> bytes:
    """A Parquet file of the rows of these steps, with phase and step."""
    full = pa.schema([("phase", pa.string()), ("step", pa.int64()), *(table.schema.field(name) for name in columns)])
    rows = [table.read_step(*step, columns=columns) for step in steps]
    return _parquet(pa.concat_tables([full.empty_table(), *rows]))


def in_chunks(table: StepTable[Any], steps: Iterable[Step], columns: Sequence[str]) -> Iterator[tuple[int, bytes]]:
    """Parquet files of whole steps, at least `_CHUNK_ROWS` rows each but for the last: steps in each, and the file."""
    held: list[pa.Table] = []
    for step in steps:
        held.append(table.read_step(*step, columns=columns))
        if sum(map(len, held)) >= _CHUNK_ROWS:
            yield len(held), _parquet(pa.concat_tables(held))
            held = []
    if held:
        yield len(held), _parquet(pa.concat_tables(held))


def write_tables(run: RunDirectory, files: Mapping[str, bytes]) -> None:
    """Writes the steps of all tables of a bundle into a run directory. Columns that stayed behind are null."""
    for name, table in tables_of(run).items():
        steps: dict[Step, list[pa.Table]] = {}
        for path, content in files.items():
            if path.startswith(f"tables/{name}/"):
                for step, rows in _by_step(pq.ParquetFile(pa.BufferReader(content)).read()):
                    steps.setdefault(step, []).append(rows)
        for step, sides in steps.items():
            table.write_rows(*step, _side_by_side(sides, table.schema))


def _by_step(rows: pa.Table) -> Iterator[tuple[Step, pa.Table]]:
    """The rows of each step; they stand together."""
    keys = list(zip(rows["phase"].to_pylist(), rows["step"].to_pylist(), strict=True))
    begin = 0
    for end in range(1, len(keys) + 1):
        if end == len(keys) or keys[end] != keys[begin]:
            yield keys[begin], rows.slice(begin, end - begin).drop_columns(["phase", "step"])
            begin = end


def _side_by_side(sides: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    found = {name: side[name] for side in sides for name in side.column_names}
    names = [name for name in schema.names if name in found]
    return pa.table([found[name] for name in names], schema=pa.schema([schema.field(name) for name in names]))


def _parquet(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", compression_level=_LEVEL, write_statistics=False)
    return bytes(sink.getvalue())
