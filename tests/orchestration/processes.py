"""Small runs with all engines in processes of their own, and what is left of them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluators.audit.records import AuditFinding, FindingKind, TaskAudit
from evaluators.audit.run import write_audits
from evaluators.tasks import find_task
from orchestration.run.directory import RunDirectory
from tests.orchestration.small import SMALL

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = ("-m", "orchestration.commands.main")
HANG_SECONDS = 800
"""For a run to get on, or to end, however busy the machine is: it is there for those that hang."""


def mark_pooling(path: Path) -> None:
    """Writes an audit that says of one of the tasks that it cannot tell a good program from a cheat."""
    pooling, finding = find_task("level1/avg_pool1d"), AuditFinding(FindingKind.CONSTANT, "it is not; this is a test")
    write_audits([TaskAudit(pooling.id, pooling.text_digest, pooling.name, (finding,))], path)


def start(root: Path, *overrides: str, program: tuple[str, ...] = PROGRAM) -> subprocess.Popen[str]:
    """A small run below `root`. `program`: what Python is to run, `warpsmith` unless given."""
    mark_pooling(root / "audits.parquet")
    command = [sys.executable, *program, "run", "local", f"root={root}", *SMALL, *overrides]
    # Every process of the run inherits the path, and is known by the folder at its end.
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PATH": f"{os.environ['PATH']}{os.pathsep}{root}"}
    environment.pop("RAY_ADDRESS", None)
    return subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, preexec_fn=_heed_ctrl_c,
    )  # fmt: skip


def _heed_ctrl_c() -> None:
    """A shell's background jobs ignore Ctrl-C, and what they start does, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def pids_of(root: Path, title: str = "") -> list[int]:
    """The processes of the runs below a folder, or those of them with a title."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = f"{os.pathsep}{root}\0".encode() in (folder / "environ").read_bytes()
            if is_ours and title.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue  # it has ended, or is another user's
    return found


def left_of(root: Path, seconds: float = 120.0) -> list[int]:
    """The processes of a run that are still there after so many seconds."""
    deadline = time.monotonic() + seconds
    while (left := pids_of(root)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


def wait_for(process: subprocess.Popen[str], run: RunDirectory, phase: str, step: int) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        state = run.read_state()
        if state is not None and state.phase == phase and state.step >= step:
            return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    pytest.fail(f"{phase} step {step} was not reached within {HANG_SECONDS} s")
