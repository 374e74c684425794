"""A full disk ends the run with one line, and leaves the last commit whole; with room again the same writes succeed.

The disk is a small one of its own, made in namespaces for user and mounts.
"""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from learners.checkpoint_files import CheckpointFolder
from learners.patience import Patience
from learners.room import DiskFull, check_room, disk_full, telling_full_disk
from orchestration.run.answers import Answer, Asked
from orchestration.run.directory import RunDirectory
from orchestration.run.snapshots import Draft
from orchestration.run.spool import FOLDER, Spool
from orchestration.run.state import RunState
from orchestration.run.sweep import sweep

REPOSITORY = Path(__file__).parents[3]
MIB = 8
STATE = RunState(1, "sft", 1, 1, extra={"filler": "x" * 50_000})


def save(run: RunDirectory) -> str:
    """A checkpoint as a rank of the learner writes it: torch has errors of its own for a full disk."""
    import torch

    draft = run.checkpoints.begin("step-000002")
    try:
        folder = CheckpointFolder(draft.place, run.storage.patience)
        with folder.new_files(0) as (local, written):
            torch.save({"weights": torch.zeros(1 << 18)}, local / "shard-0")  # 1 MiB
        return run.checkpoints.commit(draft, written)
    except DiskFull:
        run.checkpoints.discard(draft)
        raise


WRITERS: dict[str, Callable[[RunDirectory], object]] = {
    "state": lambda run: run.write_state(RunState(1, "sft", 2, 2, extra=STATE.extra)),
    "rows": lambda run: run.metrics.write("1-sft", 2, {f"metric/{number}": number * 0.1 for number in range(9999)}),
    "spool": lambda run: Spool(run.storage).add("metrics", {"filler": "x" * 50_000}),
    "answers": lambda run: run.answers().add(Asked("1-sft", 0, "m", "t", "p", 1), Answer("x" * 50_000, "stop")),
    "checkpoint": save,
}


def scenario(folder: Path) -> dict[str, Any]:
    """What becomes of each writer on a disk that is full, and what is left of it; then, with room again."""
    run = RunDirectory(folder, "demo", patience=Patience(600.0))
    run.write_state(STATE)
    run.metrics.write("1-sft", 1, {"loss": 1.0})
    run.answers().add(Asked("1-sft", 0, "m", "t", "p", 0), Answer("known", "stop"))
    before, filler = content_of(folder), folder / "filler"
    fill(filler)
    said = {name: message_of(lambda: write(run)) for name, write in WRITERS.items()}  # noqa: B023 - called at once
    left = {path: content for path, content in content_of(folder).items() if path != "filler"}
    with open(filler, "r+b") as file:
        file.truncate((MIB << 20) - (512 << 10))  # half of what a checkpoint takes
    said["half a checkpoint"] = message_of(lambda: save(run))
    filler.unlink()
    swept = sweep(run.storage, None)
    for write in WRITERS.values():
        write(run)
    written = {
        "state": run.read_state() == RunState(1, "sft", 2, 2, extra=STATE.extra),
        "rows": run.metrics.read().num_rows == 10_000,
        "spool": len(run.storage.files(FOLDER)) == 1,
        "answers": run.answers().count == 2,
        "checkpoint": run.checkpoints.paths() == ["checkpoints/step-000002"],
    }
    return {"said": said, "untouched": left == before, "names": sorted(left), "swept": swept, "written": written}


def message_of(write: Callable[[], object]) -> str:
    try:
        write()
    except DiskFull as error:
        return str(error)
    return "written"


def fill(filler: Path) -> None:
    """Takes all room that there is."""
    with open(filler, "wb", buffering=0) as file:
        while has_room(file):
            pass


def has_room(file: io.FileIO) -> bool:
    try:
        return bool(file.write(bytes(4096)))
    except OSError as error:
        return error.errno != errno.ENOSPC


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The scenario's result on a small disk."""
    disk = tmp_path_factory.mktemp("disk")
    mount = f"mount -t tmpfs -o size={MIB}m none {disk}"
    unshared = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    tried = subprocess.run([*unshared, mount], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"this kernel lets nobody mount a disk in a namespace of its own: {tried.stderr.strip()}")
    code = (
        "import json, pathlib, sys\n"
        "from tests.orchestration.run.test_full_disk import scenario\n"
        "print(json.dumps(scenario(pathlib.Path(sys.argv[1]))))"
    )
    command = [*unshared, f'{mount} && exec "$0" -c "$1" {disk}', sys.executable, code]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return {**result, "disk": str(disk)}


@pytest.mark.parametrize("writer", [*WRITERS, "half a checkpoint"])
def test_every_writer_of_a_run_ends_with_folder_room_and_remedy(found: dict[str, Any], writer: str) -> None:
    folder, _, rest = found["said"][writer].partition(": ")
    assert folder.startswith(f"{found['disk']}/demo")
    assert rest.startswith("No space left on device (0.")
    assert rest.endswith(f" of {MIB} MiB are free); make room there, or raise the quota")


def test_what_was_committed_is_untouched_and_nothing_else_is_left(found: dict[str, Any]) -> None:
    assert found["untouched"], found["names"]
    assert found["names"] == [
        "demo/answers.jsonl",
        "demo/metrics/phase=1-sft/step=000001/metrics.parquet",
        "demo/state.json",
    ]
    assert found["swept"] == []


def test_with_room_again_the_same_writes_succeed(found: dict[str, Any]) -> None:
    assert found["written"] == dict.fromkeys(WRITERS, True)


def test_an_error_of_a_library_is_that_of_a_full_disk_only_if_it_is_full(tmp_path: Path, monkeypatch) -> None:
    def write() -> None:
        with telling_full_disk(tmp_path):
            raise RuntimeError("PytorchStreamWriter failed writing file data/0")

    with pytest.raises(RuntimeError, match="PytorchStreamWriter"):
        write()
    assert list(tmp_path.iterdir()) == []
    quota = OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(quota))
    with pytest.raises(DiskFull, match="Disk quota exceeded"):
        write()
    with pytest.raises(DiskFull):
        check_room(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_object_store_is_named_without_figures() -> None:
    error = disk_full("s3://bucket/demo", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert str(error) == "s3://bucket/demo: No space left on device; make room there, or raise the quota"


@pytest.fixture(params=["shared folder", "object store"])
def run(request, tmp_path) -> RunDirectory:
    if request.param == "shared folder":
        return RunDirectory(tmp_path, "demo")
    return RunDirectory(request.getfixturevalue("object_store").format(tmp_path.name), "demo")


def half_written(draft: Draft) -> None:
    with CheckpointFolder(draft.place).new_files(0) as (local, _):
        (local / "shard-0").write_text("half")


def test_checkpoints_that_a_killed_process_left_are_swept_and_the_committed_one_stays(run: RunDirectory) -> None:
    first = run.checkpoints.begin("step-000001")
    half_written(first)
    committed = run.checkpoints.commit(first, [])
    old = run.checkpoints.begin("step-000000")
    half_written(old)
    run.checkpoints.commit(old, [])
    run.write_state(RunState(checkpoint=committed))
    half_written(run.checkpoints.begin("step-000002"))
    assert len(sweep(run.storage, committed)) == 1
    assert sorted(run.checkpoints.paths()) == ["checkpoints/step-000000", committed]
    assert len(run.storage.files("checkpoints", "shard-0")) == 2
    assert sweep(run.storage, committed) == []


def test_partial_files_of_processes_that_are_gone_are_swept(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "demo")
    run.write_state(STATE)
    run.metrics.write("1-sft", 1, {"loss": 1.0})
    before = content_of(tmp_path)
    gone = subprocess.Popen(["true"])
    gone.wait(timeout=30)
    steps = tmp_path / "demo" / "metrics" / "phase=1-sft" / "step=000001"
    for pid in (gone.pid, os.getpid()):  # the second as in a container, where every driver has the same id
        (tmp_path / "demo" / f".state.json.{pid}.partial").write_text("{")
        (steps / f".metrics.parquet.{pid}.partial").write_text("")
    at_work = tmp_path / "demo" / f".report.html.{os.getppid()}.partial"
    at_work.write_text("<")
    assert len(sweep(run.storage, None)) == 4
    at_work.unlink()
    assert content_of(tmp_path) == before


def test_a_checkpoint_that_was_moved_away_and_never_replaced_comes_back(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "demo")
    for name in (".step-1.retired", ".step-2.retired", "step-2"):
        (tmp_path / "demo" / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / "demo" / "checkpoints" / name / "weights").write_text(name)
    assert sweep(run.storage, None) == ["checkpoints/.step-2.retired"]
    assert run.checkpoints.paths() == ["checkpoints/step-1", "checkpoints/step-2"]
    assert (tmp_path / "demo" / "checkpoints" / "step-2" / "weights").read_text() == "step-2"
