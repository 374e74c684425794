"""A run's folder outlasts the failures of its file system, and what is in it then is what would have been."""

from __future__ import annotations

import errno
import pkgutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from configs.schema import RunConfig
from evaluators.records import Candidate
from learners.checkpoint_files import CheckpointFolder
from learners.patience import Patience, StorageDown
from orchestration.run.commits import Commits, Snapshot
from orchestration.run.directory import RunDirectory
from orchestration.run.retention import Retention
from orchestration.run.state import RunState
from orchestration.run.steps import StepTable
from orchestration.run.storage import Storage
from tests.flaky_files import Fault, RandomFaults, always, flaky, remote

ROWS = pa.schema([("value", pa.float64())])


def run_on(folder: Path, fault: Fault, patience: float = 30.0) -> RunDirectory:
    """A run on a file system that fails, which is not taken for a local one."""
    folder.mkdir(exist_ok=True)
    waiting = Patience(patience, wait=lambda seconds: None)
    return RunDirectory("", "demo", storage=Storage(flaky(remote(folder), fault), "demo", "flaky://demo", "", waiting))


def save(run: RunDirectory, version: int) -> Snapshot:
    """What two ranks and the driver do for a commit."""
    storage = run.storage
    draft = run.checkpoints.begin(f"step-{version:06d}")
    written = []
    for rank in range(2):
        folder = CheckpointFolder(storage.full(draft.path), storage.patience, system=storage.filesystem)
        with folder.new_files(rank) as (local, files):
            (local / f"shard-{rank}").write_bytes(bytes([version, rank]) * 1000)
        folder.check(files)
        written += files
    checkpoint = run.checkpoints.commit(draft, written)
    return Snapshot(version, checkpoint, run.buffers.write(pa.table({"score": [float(version)]}), version))


def take_steps(run: RunDirectory) -> None:
    """A short run: rows, programs, checkpoints, commits, pruning, and a resume in the middle."""
    run.write_config(RunConfig(name="demo"))
    table = StepTable[pa.Table](run.storage, "rows", ROWS, lambda rows: rows)
    commits = Commits(run, RunState(), Retention(last=1))
    for step in range(5):
        table.write("1-sft", step, pa.table({"value": [float(step)]}))
        run.candidates.write("1-sft", step, [Candidate.propose("t1", f"ModelNew = {step}", "policy:1")])
        commits.advance("1-sft", step + 1, {"step": step}, save(run, step + 1))
        if step == 2:
            commits.reload()
    commits.complete("1-sft", 5, {}, save(run, 6))
    assert table.read().column("value").to_pylist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("seed", range(4))
def test_a_run_on_a_flaky_file_system_leaves_the_bytes_of_an_undisturbed_one(seed: int, tmp_path: Path) -> None:
    take_steps(run_on(tmp_path / "calm", lambda operation: None))
    faults = RandomFaults(seed)
    take_steps(run_on(tmp_path / "flaky", faults))
    assert faults.count > 50
    calm, disturbed = content_of(tmp_path / "calm"), content_of(tmp_path / "flaky")
    assert set(disturbed) == set(calm)
    assert {path for path in calm if disturbed[path] != calm[path]} == set()
    assert "demo/state.json" in calm
    assert len([path for path in calm if path.endswith("files.json")]) == 2


def test_a_file_system_that_never_works_ends_with_one_line(tmp_path: Path) -> None:
    run = run_on(tmp_path, always(errno.EIO), patience=0.05)
    with pytest.raises(StorageDown) as raised:
        run.write_state(RunState())
    assert str(raised.value).startswith("flaky://demo: cannot write state.json: tried for 0 s (storage.patience), and")
    with pytest.raises(StorageDown, match=r"cannot look for state\.json"):
        run.read_state()
    with pytest.raises(StorageDown, match="cannot list checkpoints"):
        run.checkpoints.paths()


def test_what_is_absent_is_absent_at_once(tmp_path: Path) -> None:
    run = run_on(tmp_path, lambda operation: None, patience=600.0)
    with pytest.raises(FileNotFoundError):
        run.storage.read("absent")
    run.storage.delete("absent")


class Replaced:
    """A file system on which a file is replaced after its size was asked for and before it is read, as pyarrow reads
    objects of S3: it gets as many bytes of the new one as the old one had."""

    def __init__(self, system: pafs.FileSystem, *contents: bytes) -> None:
        self._system, self._contents = system, list(contents)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        size = self._system.get_file_info(path).size
        if self._contents:
            with self._system.open_output_stream(path) as stream:
                stream.write(self._contents.pop(0))
        with self._system.open_input_stream(path) as stream:
            return pa.BufferReader(stream.read()[:size])


def test_a_file_that_is_replaced_while_it_is_read_is_read_whole(tmp_path: Path) -> None:
    system: Any = Replaced(remote(tmp_path), b"longer", b"the longest", b"short")
    storage = Storage(system, "demo", "remote://demo")
    storage.write("state.json", b"long")
    assert storage.read("state.json") in (b"longer", b"the longest", b"short")
    assert storage.read("state.json") == b"short"


def test_a_local_folder_is_patient_too(tmp_path: Path, monkeypatch) -> None:
    """A shared disk that fails at a moment, at each step of publishing a checkpoint in turn."""
    patience = Patience(30.0, first_pause=1e-4)
    for number, name in enumerate(("_sync", "sync_folder", "os.replace", "shutil.move", "os.makedirs", "os.fsync")):
        run = RunDirectory(tmp_path / name, "demo", patience=patience)
        for content in ("old", "new"):
            folder = run.checkpoints.new_folder("step-1")
            (folder / "weights").write_text(content)
            fails_once(monkeypatch, name)
            path = run.checkpoints.publish(folder, "step-1")
            run.write_state(RunState(step=number))
            monkeypatch.undo()
        assert (run.checkpoints.fetch(path) / "weights").read_text() == "new"
        assert run.read_state() == RunState(step=number)
        assert not [path for path in content_of(tmp_path / name) if "partial" in path or "retired" in path]


def fails_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The function that the storage calls by this name fails at its first call, and works after that."""
    real, calls = pkgutil.resolve_name(f"orchestration.run.storage:{name}"), []

    def once(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise OSError(errno.ESTALE, "stale")
        return real(*arguments, **options)

    monkeypatch.setattr(f"orchestration.run.storage.{name}", once)
