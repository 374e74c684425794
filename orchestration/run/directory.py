"""The folder of one run, on any pyarrow file system (DESIGN.md section 8): what survives a kill, what a report needs.

Nothing here may leave a half-written file under its final name: readers see a file's old content or its new one.
Writing a step again replaces that step's file, so redoing a step after a kill never doubles rows.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from configs.load import dump_config, parse_config
from configs.schema import RunConfig
from evaluators.audit.marks import Mark
from evaluators.records import (
    CANDIDATE_SCHEMA,
    VERDICT_SCHEMA,
    Candidate,
    Verdict,
    candidate_table,
    digest_of,
    verdict_table,
)
from learners.records import ROLLOUT_SCHEMA, Rollout, rollout_table
from orchestration.run.state import RunState
from orchestration.run.storage import Storage

METRIC_SCHEMA = pa.schema([("name", pa.string()), ("value", pa.float64()), ("time", pa.float64())])
"""One row a metric; `time` is in seconds since 1970."""


class RunDirectoryError(Exception):
    """A run directory that cannot be used; one line that names the file and the remedy."""


@dataclass(frozen=True)
class Kernel:
    """The best program found for a task on an architecture, and the verdict that says so."""

    task_id: str
    arch: str
    candidate: Candidate
    verdict: Verdict


class RunDirectory:
    """One run's folder. Making the object touches nothing; the first write makes the folder."""

    def __init__(self, root: str | Path, name: str, *, storage: Storage | None = None) -> None:
        """`root` is a local path or a URI of a pyarrow file system (`s3://bucket/runs`, `gs://...`).

        `storage` replaces what `root` stands for, for file systems that no URI describes.
        """
        self.name = name
        self.storage = storage or Storage.at(root, name)

    def __str__(self) -> str:
        return str(self.storage)

    @property
    def local_path(self) -> Path | None:
        """The folder's path when it is on a local file system, else None."""
        return self.storage.local_path

    def exists(self) -> bool:
        """Whether a run has been started here."""
        return self.storage.is_file("config.yaml") or self.storage.is_file("state.json")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps a second process from running in the same local folder; raises RunDirectoryError when one does.

        The kernel drops the lock with the process, so a kill never leaves a stale one. Remote file systems have no
        locks: there, two runs of one name are the user's to avoid.
        """
        folder = self.local_path
        if folder is None:
            yield
            return
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "lock", "a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                owner = file.read().strip() or "unknown"
                raise RunDirectoryError(
                    f"{folder}: process {owner} is running in it; stop that one, or choose another name=..."
                ) from error
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield
            file.truncate(0)

    # Configuration and state

    def write_config(self, config: RunConfig) -> None:
        """Writes the resolved configuration to `config.yaml`."""
        self.storage.write("config.yaml", dump_config(config).encode())

    def read_config(self) -> RunConfig:
        """The configuration of the run; raises RunDirectoryError without one, ConfigError when it does not parse."""
        if not self.storage.is_file("config.yaml"):
            raise RunDirectoryError(f"{self}: not a run directory (no config.yaml); give the folder that holds one")
        return parse_config(self.storage.read("config.yaml").decode(), f"{self}/config.yaml")

    def write_marks(self, marks: Mapping[str, Mark]) -> None:
        """Writes which of the run's tasks cannot tell a good program from a cheat to `marked.json`, by task id."""
        rows = {name: mark.to_row() for name, mark in marks.items()}
        self.storage.write("marked.json", json.dumps(rows, indent=2).encode())

    def read_marks(self) -> dict[str, Mark]:
        """The marks that `write_marks` wrote; none in a run of a version that left nothing out."""
        if not self.storage.is_file("marked.json"):
            return {}
        try:
            rows = json.loads(self.storage.read("marked.json"))
            return {name: Mark.from_row(row) for name, row in rows.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RunDirectoryError(f"{self}/marked.json: not a list of marked tasks ({error})") from error

    def write_held_out(self, names: Sequence[str]) -> None:
        """Writes the ids of the tasks that the run never trains on to `held_out.json`."""
        self.storage.write("held_out.json", json.dumps(list(names), indent=2).encode())

    def read_held_out(self) -> list[str]:
        """The ids that `write_held_out` wrote; none in a run of a version that held none out."""
        if not self.storage.is_file("held_out.json"):
            return []
        try:
            names = json.loads(self.storage.read("held_out.json"))
        except ValueError as error:
            raise RunDirectoryError(f"{self}/held_out.json: not a list of task ids ({error})") from error
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise RunDirectoryError(f"{self}/held_out.json: not a list of task ids; restore the run's own")
        return names

    def read_state(self) -> RunState | None:
        """The last committed state, or None before the first."""
        if not self.storage.is_file("state.json"):
            return None
        try:
            row = json.loads(self.storage.read("state.json"))
            unknown = set(row) - {item.name for item in fields(RunState)}
            if unknown:
                raise ValueError(f"unknown key {sorted(unknown)[0]}")
            return RunState(**row)
        except (ValueError, TypeError) as error:
            raise RunDirectoryError(
                f"{self}/state.json: not a run's state ({error}); remove it to start the run again"
            ) from error

    def commit(self, state: RunState) -> None:
        """Replaces the state atomically: a kill at any moment leaves the old state or the new one, whole."""
        self.storage.write("state.json", json.dumps(asdict(state), indent=2).encode())

    # What steps leave: one file per kind, phase and step

    def write_samples(self, phase: str, step: int, rollouts: Iterable[Rollout]) -> None:
        """Stores the rollouts of a step, in place of any that the step stored before."""
        self._write_step("samples", phase, step, rollout_table(rollouts))

    def read_samples(self, phase: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Rollouts, with the columns `phase` and `step` in front; of one phase, or of all."""
        return self._read_steps("samples", ROLLOUT_SCHEMA, phase, columns)

    def write_verdicts(self, phase: str, step: int, verdicts: Iterable[Verdict]) -> None:
        """Stores the verdicts of a step, in place of any that the step stored before."""
        self._write_step("verdicts", phase, step, verdict_table(verdicts))

    def read_verdicts(self, phase: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Verdicts, with the columns `phase` and `step` in front; of one phase, or of all."""
        return self._read_steps("verdicts", VERDICT_SCHEMA, phase, columns)

    def write_candidates(self, phase: str, step: int, candidates: Iterable[Candidate]) -> None:
        """Stores the sources of a step's candidates, in place of any that the step stored before."""
        self._write_step("candidates", phase, step, candidate_table(candidates))

    def read_candidates(self, phase: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Candidates, with the columns `phase` and `step` in front; of one phase, or of all."""
        return self._read_steps("candidates", CANDIDATE_SCHEMA, phase, columns)

    def write_metrics(self, phase: str, step: int, metrics: Mapping[str, float]) -> None:
        """Stores the metrics of a step, in place of any that the step stored before."""
        now = time.time()
        rows = [{"name": name, "value": float(value), "time": now} for name, value in metrics.items()]
        self._write_step("metrics", phase, step, pa.Table.from_pylist(rows, schema=METRIC_SCHEMA))

    def read_metrics(self, phase: str | None = None) -> pa.Table:
        """The history of metrics, one row each: phase, step, name, value, time (seconds since 1970)."""
        return self._read_steps("metrics", METRIC_SCHEMA, phase, None)

    def _write_step(self, kind: str, phase: str, step: int, table: pa.Table) -> None:
        self.storage.write(f"{kind}/phase={_quoted(phase)}/step={step:06d}/{kind}.parquet", _parquet(table))

    def _read_steps(self, kind: str, schema: pa.Schema, phase: str | None, columns: Sequence[str] | None) -> pa.Table:
        below = kind if phase is None else f"{kind}/phase={_quoted(phase)}"
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        tables = []
        for path in self.storage.files(below, f"/{kind}.parquet"):
            phase_part, step_part = path.split("/")[-3:-1]
            # A missing column (an older version's file) is null, an unknown one is left out.
            file = pq.ParquetFile(pa.BufferReader(self.storage.read(path)))
            stored = file.read([name for name in wanted.names if name in file.schema_arrow.names])
            table = pa.concat_tables([wanted.empty_table(), stored], promote_options="default").select(wanted.names)
            name, step = unquote(phase_part.removeprefix("phase=")), int(step_part.removeprefix("step="))
            table = table.add_column(0, "phase", pa.array([name] * len(table), pa.string()))
            tables.append(table.add_column(1, "step", pa.array([step] * len(table), pa.int64())))
        full = pa.schema([("phase", pa.string()), ("step", pa.int64()), *wanted])
        return pa.concat_tables(tables) if tables else full.empty_table()

    # The buffer

    def write_buffer(self, table: pa.Table, step: int) -> str:
        """Stores a snapshot of the buffer and returns its relative path, for `RunState.buffer`.

        The name holds a digest of the content, so that no snapshot a committed state points to is ever overwritten.
        """
        content = _parquet(table)
        path = f"buffer/step-{step:06d}-{digest_of(content.hex())[:8]}.parquet"
        self.storage.write(path, content)
        return path

    def read_buffer(self, path: str) -> pa.Table:
        """The snapshot at a path that `write_buffer` returned, with its schema's metadata."""
        if not self.storage.is_file(path):
            raise RunDirectoryError(f"{self}/{path}: no such buffer snapshot; resume from a complete run directory")
        return pq.read_table(pa.BufferReader(self.storage.read(path)))

    def prune_buffers(self, keep: int, protect: Sequence[str | None] = ()) -> None:
        """Removes all but the newest `keep` snapshots and those in `protect`."""
        newest = sorted(self.storage.files("buffer", ".parquet"), key=self.storage.modified)[-keep:] if keep else []
        for path in self.storage.files("buffer", ".parquet"):
            if path not in newest and path not in protect:
                self.storage.delete(path)

    # The best programs

    def save_kernel(self, task_id: str, arch: str, candidate: Candidate, verdict: Verdict) -> bool:
        """Stores a correct program when it beats the one stored for the task and architecture; says whether it did.

        Better means a larger speed-up over the best baseline. `<arch>.json` holds program and verdict and is what is
        read back; `<arch>.py` stands beside it for people.
        """
        path = f"kernels/{_quoted(task_id)}/{_quoted(arch)}"
        merit = _merit(verdict)
        if merit is None:
            return False
        standing = self._kernel(f"{path}.json") if self.storage.is_file(f"{path}.json") else None
        if standing is not None and merit <= (_merit(standing.verdict) or 0.0):
            return False
        row = {"task_id": task_id, "arch": arch, "candidate": asdict(candidate), "verdict": verdict.to_row()}
        self.storage.write(f"{path}.py", candidate.source.encode("utf-8", "replace"))
        self.storage.write(f"{path}.json", json.dumps(row, indent=2, default=dict).encode())
        return True

    def save_kernels(self, arch: str, judged: Iterable[tuple[Candidate, Verdict]]) -> None:
        """Stores of every task the best of these programs, where it beats the stored one."""
        best: dict[str, tuple[float, Candidate, Verdict]] = {}
        for candidate, verdict in judged:
            merit = _merit(verdict)
            if merit is not None and merit > best.get(candidate.task_id, (0.0,))[0]:
                best[candidate.task_id] = merit, candidate, verdict
        for task_id, (_, candidate, verdict) in best.items():
            self.save_kernel(task_id, arch, candidate, verdict)

    def discard_kernel(self, candidate: Candidate, arch: str) -> None:
        """Removes a program from the best ones."""
        path = f"kernels/{_quoted(candidate.task_id)}/{_quoted(arch)}"
        if self.storage.is_file(f"{path}.json") and self._kernel(f"{path}.json").candidate.digest == candidate.digest:
            self.storage.delete(f"{path}.json")
            self.storage.delete(f"{path}.py")

    def kernels(self) -> list[Kernel]:
        """The best program of every task and architecture, by task."""
        return [self._kernel(path) for path in self.storage.files("kernels", ".json")]

    def _kernel(self, path: str) -> Kernel:
        row = json.loads(self.storage.read(path))
        return Kernel(row["task_id"], row["arch"], Candidate(**row["candidate"]), Verdict.from_row(row["verdict"]))

    # Checkpoints

    def checkpoint_folder(self, name: str) -> Path:
        """An empty local folder to write the checkpoint `name` into; it counts only once it is published."""
        return self.storage.staging_folder(f"checkpoints/{name}")

    def publish_checkpoint(self, local: Path, name: str) -> str:
        """Moves (or, to a remote file system, copies) a written checkpoint to its place.

        Returns its relative path, for `RunState.checkpoint`. Only a complete checkpoint ever stands under that path.
        """
        path = f"checkpoints/{name}"
        self.storage.publish_folder(local, path)
        return path

    def fetch_checkpoint(self, path: str) -> Path:
        """A local folder with the checkpoint at a path that `publish_checkpoint` returned; downloads a remote one."""
        self.storage.restore_folder(path)
        if not self.storage.is_folder(path):
            raise RunDirectoryError(f"{self}/{path}: no such checkpoint; resume from a complete run directory")
        return self.storage.fetch_folder(path)

    def checkpoints(self) -> list[str]:
        """The relative paths of the published checkpoints, oldest first."""
        return sorted(self.storage.folders("checkpoints"), key=self.storage.modified)

    def prune_checkpoints(self, keep: int, protect: Sequence[str | None] = ()) -> list[str]:
        """Removes all but the newest `keep` checkpoints and those in `protect`; returns what it removed."""
        paths = self.checkpoints()
        newest = paths[-keep:] if keep else []
        doomed = [path for path in paths if path not in newest and path not in protect]
        for path in doomed:
            self.storage.delete(path)
        return doomed

    # The report

    def write_report(self, html: str) -> str:
        """Writes `report/index.html` and returns where it stands."""
        self.storage.write("report/index.html", html.encode("utf-8", "replace"))
        return f"{self}/report/index.html"


def _merit(verdict: Verdict) -> float | None:
    best = verdict.best_baseline
    return verdict.speedups[best].value if verdict.succeeded and best is not None else None


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def _quoted(name: str) -> str:
    """A name as one path segment, reversibly: `assess/base` becomes `assess%2Fbase`."""
    text = quote(name, safe=" +@,=()[]")
    return text.replace(".", "%2E") if not text.strip(".") else text
