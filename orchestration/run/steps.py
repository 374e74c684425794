"""Tables that grow with the steps of a run: samples, candidates, verdicts and metrics.

Each step writes one Parquet file per table. Writing a step again replaces its file, so a step that is repeated after a
kill never doubles rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from orchestration.run.errors import RunDirectoryError
from orchestration.run.storage import Storage, parquet_bytes, path_segment

METRIC_SCHEMA = pa.schema([("name", pa.string()), ("value", pa.float64()), ("time", pa.float64())])
"""One row per metric. `time` is in seconds since 1970."""

Records = TypeVar("Records")


class StepTable(Generic[Records]):
    """One table in the folder `name`, stored as `phase=<phase>/step=<step>/<name>.parquet`."""

    def __init__(self, storage: Storage, name: str, schema: pa.Schema, to_table: Callable[[Records], pa.Table]) -> None:
        """`to_table` makes an Arrow table with the columns of `schema` from the records of one step."""
        self._storage = storage
        self._name = name
        self._schema = schema
        self._to_table = to_table
        self.writes = 0
        """Steps that were written so far."""

    def write(self, phase: str, step: int, records: Records) -> None:
        """Stores the records of a step. Replaces the records that the step stored before."""
        self.write_rows(phase, step, self._to_table(records))

    def write_rows(self, phase: str, step: int, rows: pa.Table) -> None:
        """As `write`, with an Arrow table. Columns that it lacks are null when they are read."""
        self._storage.write(self._path(phase, step), parquet_bytes(rows))
        self.writes += 1

    @property
    def schema(self) -> pa.Schema:
        """The columns of a step, without `phase` and `step`."""
        return self._schema

    def steps(self) -> list[tuple[str, int]]:
        """Phase and step of every file, ordered by their names."""
        return [_step_of(path) for path in self._storage.files(self._name, f"/{self._name}.parquet")]

    def written(self) -> dict[tuple[str, int], int]:
        """When each step was written, by phase and step, in nanoseconds of the file system's clock."""
        times = self._storage.times(self._name, f"/{self._name}.parquet")
        return {_step_of(path): time for path, time in times.items()}

    def read_step(self, phase: str, step: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of one step, as `read` gives those of all. Raises FileNotFoundError."""
        schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
        return self._read_file(self._path(phase, step), schema)

    def read(self, phase: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of one phase, or of all phases, with the columns `phase` and `step` first.

        `columns` limits the columns that follow these two. A column that an older file lacks is null. A column that is
        not in the schema is left out.
        """
        folder = self._name if phase is None else f"{self._name}/phase={path_segment(phase)}"
        schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
        tables = [self._read_file(path, schema) for path in self._storage.files(folder, f"/{self._name}.parquet")]
        full = pa.schema([("phase", pa.string()), ("step", pa.int64()), *schema])
        return pa.concat_tables(tables) if tables else full.empty_table()

    def _path(self, phase: str, step: int) -> str:
        return f"{self._name}/phase={path_segment(phase)}/step={step:06d}/{self._name}.parquet"

    def _read_file(self, path: str, schema: pa.Schema) -> pa.Table:
        def stored_columns(source: pa.NativeFile) -> pa.Table:
            file = pq.ParquetFile(source, pre_buffer=True)
            return file.read([name for name in schema.names if name in file.schema_arrow.names])

        try:
            stored = self._storage.parse(path, stored_columns)
            table = pa.concat_tables([schema.empty_table(), stored], promote_options="default").select(schema.names)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise RunDirectoryError(
                f"{self._storage}/{path}: another version wrote it, or it is damaged ({error}); use that version"
            ) from error
        phase, step = _step_of(path)
        table = table.add_column(0, "phase", pa.array([phase] * len(table), pa.string()))
        return table.add_column(1, "step", pa.array([step] * len(table), pa.int64()))


def _step_of(path: str) -> tuple[str, int]:
    """Phase and step of a file."""
    phase, step = path.split("/")[-3:-1]
    return unquote(phase.removeprefix("phase=")), int(step.removeprefix("step="))


def metric_table(metrics: Mapping[str, float]) -> pa.Table:
    """Metrics by name as a table in `METRIC_SCHEMA`, with the current time."""
    now = time.time()
    rows = [{"name": name, "value": float(value), "time": now} for name, value in metrics.items()]
    return pa.Table.from_pylist(rows, schema=METRIC_SCHEMA)
