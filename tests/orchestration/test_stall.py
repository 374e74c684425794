"""A run in which nothing moves ends by itself, with its real actors, and says what they waited for."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from orchestration.run.directory import RunDirectory
from orchestration.run.watchdog import STALLED
from tests.orchestration.processes import left_of, start

_HURRIED = '''
from orchestration import session
from orchestration.commands.main import main
from orchestration.run.watchdog import Watchdog


def watch(seconds, moves, waits):
    """Three seconds instead of an hour, once there are engines, which take longer to start."""
    return Watchdog(seconds / 1200, lambda: moves() if waits() else object(), waits)


session.Watchdog = watch
main()
'''


@pytest.mark.slow
def test_a_run_whose_engines_do_not_come_up_ends_with_its_own_code_and_leaves_nothing(tmp_path: Path) -> None:
    process = start(tmp_path, "tasks.held_out.tasks=[]", program=("-c", _HURRIED))
    try:
        output, _ = process.communicate(timeout=150)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == STALLED, output
    stall = r"nothing has moved for 0\.\d+ minutes \(stall_minutes\)"
    assert re.search(rf"{stall}; what waits for what:\n", output), output
    assert re.search(r"\n  rollout: 0 item\(s\), of which 0 wait; actor 0 starts and has \d+ s left\n", output), output
    assert "\n  driver: its main thread is in " in output
    assert re.match(rf"error: {stall}; the same command again goes on", output.splitlines()[-1]), output
    assert left_of(tmp_path) == []
    assert RunDirectory(str(tmp_path), "small").holder() is None
