"""A run that its machine is taken from commits the step under way, with the real engines."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from configs.schema import PHASES
from orchestration.run.directory import RunDirectory
from tests.orchestration.processes import HANG_SECONDS, REPOSITORY, left_of, start, wait_for


@pytest.mark.slow
def test_a_run_that_is_stopped_commits_its_step_and_leaves_nothing(tmp_path: Path) -> None:
    """`warpsmith stop` sends what clusters send to a machine that they take away."""
    run, process = (
        RunDirectory(str(tmp_path), "small"),
        start(tmp_path, "checkpoint_every=9", f"drain_seconds={HANG_SECONDS / 2}"),
    )
    try:
        wait_for(process, run, "sft", 1)
        before = run.read_state()
        command = [sys.executable, "-m", "orchestration.commands.main", "stop", str(tmp_path / "small")]
        stopped = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, check=True, timeout=HANG_SECONDS
        )
        output, _ = process.communicate(timeout=HANG_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert stopped.returncode == process.returncode == 0, output
    assert "stopped by SIGTERM at its last commit" in output
    state = run.read_state()
    assert before is not None
    assert state is not None
    assert (PHASES.index(state.phase), state.step) >= (PHASES.index(before.phase), before.step)
    assert not state.finished
    assert left_of(tmp_path) == []
