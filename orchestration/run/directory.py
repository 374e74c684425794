"""The folder of one run, on any pyarrow file system. It survives kills, and reports read it.

No file is ever half-written under its final name: readers see its old content or its new content.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path

from configs.load import StoredConfig, dump_config, parse_config
from configs.schema import RunConfig
from evaluators.audit.marks import Mark
from evaluators.records import (
    CANDIDATE_SCHEMA,
    VERDICT_SCHEMA,
    Candidate,
    Verdict,
    candidate_table,
    verdict_table,
)
from learners.patience import Patience
from learners.records import ROLLOUT_SCHEMA, Rollout, rollout_table
from orchestration.run import answers
from orchestration.run.answers import Answers
from orchestration.run.errors import RunDirectoryError
from orchestration.run.kernels import BestKernels
from orchestration.run.lease import Lease, holder_on
from orchestration.run.lock import Holder, holder_of, locked
from orchestration.run.set_aside import SetAside
from orchestration.run.snapshots import Checkpoints, TableSnapshots
from orchestration.run.state import RunState
from orchestration.run.steps import METRIC_SCHEMA, StepTable, metric_table
from orchestration.run.storage import Storage

_FORMER_STATE_KEYS = {"rng"}
"""Keys of `state.json` that older versions wrote and that hold nothing."""

EXAMPLES = "examples.jsonl"
"""The verified programs of teachers that a run collected."""
LEASE = 60.0
"""Seconds of a lease, unless a configuration says otherwise."""


class RunDirectory:
    """One run's folder. Making the object touches nothing. The first write makes the folder.

    `samples`, `candidates`, `verdicts` and `metrics` are the tables that steps write. `kernels` holds the best
    programs, `buffers`, `ahead` and `checkpoints` hold what a committed state points to, `set_aside` the programs that
    lost too many workers.
    """

    def __init__(
        self, root: str | Path, name: str, *, storage: Storage | None = None, patience: Patience | None = None
    ) -> None:
        """`root` is a local path or a URI of a pyarrow file system (`s3://bucket/runs`, `gs://...`).

        `storage` takes the place of `root`, for file systems that no URI describes. `patience`: how long to try again
        what fails there; by default not at all.
        """
        self.name = name
        self.storage = storage = storage or Storage.at(root, name, patience)
        self.samples = StepTable[Iterable[Rollout]](storage, "samples", ROLLOUT_SCHEMA, rollout_table)
        self.candidates = StepTable[Iterable[Candidate]](storage, "candidates", CANDIDATE_SCHEMA, candidate_table)
        self.verdicts = StepTable[Iterable[Verdict]](storage, "verdicts", VERDICT_SCHEMA, verdict_table)
        self.metrics = StepTable[Mapping[str, float]](storage, "metrics", METRIC_SCHEMA, metric_table)
        self.kernels = BestKernels(storage)
        self.set_aside = SetAside(storage)
        self.buffers = TableSnapshots(storage, "buffer")
        self.ahead = TableSnapshots(storage, "ahead")
        self.checkpoints = Checkpoints(storage)
        self._lease: Lease | None = None

    def __str__(self) -> str:
        return str(self.storage)

    @property
    def local_path(self) -> Path | None:
        """The folder's path if it is on a local file system, else None."""
        return self.storage.local_path

    @property
    def local_folder(self) -> Path:
        """The folder of what must lie on a local disk: the run's own, or `runs/NAME` for a run on a remote one."""
        return (self.local_path or Path("runs") / self.name).absolute()

    def store_of(self, config: RunConfig) -> Path:
        """The folder that all builders and evaluators of the run share, with its baselines and hack cases."""
        return Path(config.evaluator.store or self.local_folder / "store").absolute()

    def answers(self) -> Answers:
        """What teachers' endpoints have answered so far."""
        return Answers(self.local_folder / answers.NAME, None if self.local_path else self.storage)

    def moves(self) -> tuple[int, ...]:
        """Something that differs from before whenever rows of a step were written, or an answer of a teacher. For any
        thread."""
        path = self.local_folder / answers.NAME
        answered = path.stat().st_size if path.is_file() else 0
        return (answered, *(table.writes for table in (self.samples, self.candidates, self.verdicts, self.metrics)))

    def exists(self) -> bool:
        """Whether a run has been started here."""
        return self.storage.is_file("config.yaml") or self.storage.is_file("state.json")

    @contextmanager
    def lock(self, lease: float = LEASE) -> Iterator[None]:
        """Keeps a second process from running in the same folder. Raises RunDirectoryError if one does.

        On a local file system the kernel drops the lock when the process ends. Elsewhere it is a lease of so many
        seconds, which others wait for if the process was killed, and which `write_state` confirms.
        """
        if self.local_path is not None:
            with locked(self.local_path):
                yield
            return
        self._lease = Lease(self.storage, lease)
        try:
            with self._lease.hold():
                yield
        finally:
            self._lease = None

    def holder(self) -> Holder | None:
        """The process that runs in this folder now. None if none does."""
        return holder_on(self.storage) if self.local_path is None else holder_of(self.local_path)

    def committed_at(self) -> float:
        """When the state was committed last, in seconds since 1970; now without a commit."""
        return self.storage.modified("state.json")[0] * 1e-9 or time.time()

    def write_config(self, config: RunConfig) -> None:
        """Writes the resolved configuration to `config.yaml`."""
        self.storage.write("config.yaml", dump_config(config).encode())

    def read_config(self) -> RunConfig:
        """The run's configuration. Raises RunDirectoryError if there is none, ConfigError if it does not parse."""
        return self.read_stored_config().config

    def read_stored_config(self) -> StoredConfig:
        """As `read_config`, with the settings of an earlier version that this one does not have."""
        if not self.storage.is_file("config.yaml"):
            raise RunDirectoryError(f"{self}: not a run directory (no config.yaml); give the folder that holds one")
        return parse_config(self.storage.read("config.yaml").decode(), f"{self}/config.yaml")

    def identity(self) -> str:
        """What tells this run from every other one, also of its name, on whatever machine it goes on: 32 hexadecimal
        digits in `run.json`, drawn when they are first asked for."""
        if not self.storage.is_file("run.json"):
            self.write_identity(uuid.uuid4().hex)
        try:
            return str(json.loads(self.storage.read("run.json"))["id"])
        except (ValueError, TypeError, KeyError) as error:
            raise RunDirectoryError(
                f"{self}/run.json: not a run's identity ({error}); restore the run's own"
            ) from error

    def write_identity(self, identity: str) -> None:
        """Writes `run.json`."""
        self.storage.write("run.json", json.dumps({"id": identity}).encode())

    def write_marks(self, marks: Mapping[str, Mark]) -> None:
        """Writes to `marked.json`, by task id, which of the run's tasks cannot tell a good program from a cheat."""
        rows = {name: mark.to_row() for name, mark in marks.items()}
        self.storage.write("marked.json", json.dumps(rows, indent=2).encode())

    def read_marks(self) -> dict[str, Mark]:
        """The marks that `write_marks` wrote; none for a run of an older version, which left no task out."""
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
        """The ids that `write_held_out` wrote; none for a run of an older version, which held none out."""
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
        """The last committed state, or None before the first commit."""
        if not self.storage.is_file("state.json"):
            return None
        try:
            row = json.loads(self.storage.read("state.json"))
            if not isinstance(row, dict):
                raise TypeError(f"a {type(row).__name__}, not an object")
            values = {key: value for key, value in row.items() if key not in _FORMER_STATE_KEYS}
            unknown = set(values) - {item.name for item in fields(RunState)}
            if unknown:
                raise RunDirectoryError(
                    f"{self}/state.json: another version wrote it (it has {sorted(unknown)[0]}); use that version"
                )
            return RunState(**values)
        except (ValueError, TypeError) as error:
            raise RunDirectoryError(
                f"{self}/state.json: not a run's state ({error}); remove it to start the run again"
            ) from error

    def write_state(self, state: RunState) -> None:
        """Replaces the state atomically: a kill at any moment leaves the whole old state or the whole new one.

        Raises LeaseLost, and then leaves the old one, if another process has taken the run over.
        """
        still = self._lease.confirm if self._lease is not None else lambda: None
        self.storage.write("state.json", state_bytes(state), if_still=still)

    def write_examples(self, lines: bytes) -> None:
        """Writes the file of collected examples, in JSON Lines."""
        self.storage.write(EXAMPLES, lines)

    def read_examples(self) -> bytes:
        """What `write_examples` wrote. Raises RunDirectoryError if there is no such file."""
        if not self.storage.is_file(EXAMPLES):
            raise RunDirectoryError(f"{self}: no {EXAMPLES}; `warpsmith collect` writes it at its end")
        return self.storage.read(EXAMPLES)

    def write_report(self, html: str) -> str:
        """Writes `report/index.html` and returns its place."""
        self.storage.write("report/index.html", html.encode("utf-8", "replace"))
        return f"{self}/report/index.html"


def root_and_name(place: str) -> tuple[str, str]:
    """Root and name of the run in a folder: a path, or a URI, which may have options behind a question mark."""
    folder, mark, options = place.partition("?") if "://" in place else (os.path.abspath(place), "", "")
    root, _, name = folder.rstrip("/").rpartition("/")
    return f"{root or '/'}{mark}{options}", name


def state_bytes(state: RunState) -> bytes:
    """The content of `state.json`."""
    return json.dumps(asdict(state), indent=2).encode()
