"""A run whose disk fills ends with one line at its last commit, and goes on with room, with the real engines."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from orchestration.run.directory import RunDirectory
from tests.orchestration.processes import HANG_SECONDS, REPOSITORY, mark_pooling, wait_for
from tests.orchestration.small import SMALL

SHORT = ["schedule.phases=[sft]", "sft.epochs=4", "tracking.enabled=false", "assessment.constant_policies=false"]


class Disk(NamedTuple):
    """A small disk that processes of its own namespaces see at `inside`, and this one at `outside`."""

    inside: Path
    outside: Path
    holder: int

    def start(self, *words: str) -> subprocess.Popen[str]:
        enter = ["nsenter", "--preserve-credentials", "--user", "--mount", f"--target={self.holder}"]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        environment.pop("RAY_ADDRESS", None)
        command = [*enter, sys.executable, "-m", "orchestration.commands.main", "run", *words]
        folder, pipe = self.inside.parent, subprocess.PIPE
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)

    def fill(self) -> None:
        """Takes all room that there is at this moment."""
        with open(self.outside / "filler", "ab", buffering=0) as file:
            try:
                while file.write(bytes(1 << 16)):
                    pass
            except OSError:
                return


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    inside = tmp_path / "disk"
    inside.mkdir()
    made = f"mount -t tmpfs -o size=96m none {inside} && echo made && exec sleep 900"
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", made]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as holder:
        assert holder.stdout is not None
        said = holder.stdout.readline()
        if said != "made\n":
            pytest.skip(f"this kernel lets nobody mount a disk in a namespace of its own: {said.strip()}")
        yield Disk(inside, Path(f"/proc/{holder.pid}/root{inside}"), holder.pid)
        holder.kill()


@pytest.mark.slow
def test_a_run_whose_disk_fills_ends_with_one_line_and_goes_on_with_room(disk: Disk, tmp_path: Path) -> None:
    mark_pooling(tmp_path / "audits.parquet")
    words = ["local", f"root={disk.inside}", *SMALL, *SHORT, f"tasks.audit={tmp_path}/audits.parquet"]
    run = RunDirectory(disk.outside, "small")
    process = disk.start(*words)
    try:
        wait_for(process, run, "sft", 1)
        deadline = time.monotonic() + 240
        while process.poll() is None and time.monotonic() < deadline:
            disk.fill()
            time.sleep(0.05)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1, output
    last = output.strip().splitlines()[-1]
    assert f"{disk.inside}/small" in last
    assert "No space left on device (0.0 of 96 MiB are free); make room there, or raise the quota; the same" in last
    state = run.read_state()
    assert state is not None
    assert not state.finished
    assert state.checkpoint in run.checkpoints.paths()
    (disk.outside / "filler").unlink()
    again = disk.start(*words)
    try:
        output, _ = again.communicate(timeout=HANG_SECONDS)
    finally:
        again.kill()
    assert again.returncode == 0, output
    finished = run.read_state()
    assert finished is not None
    assert finished.finished
    assert not [path for path in disk.outside.rglob("*.partial") if "store" not in path.parts]
