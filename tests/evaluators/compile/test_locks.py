"""Identical builds wait for each other, but never longer than the time limit, and never for a process that is dead."""

from __future__ import annotations

import logging
import os
import signal
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from evaluators.compile.locks import locked
from tests.processes import forks


def _hold(path: Path, held: Event) -> None:
    with locked(path, 10.0):
        held.set()
        time.sleep(60)


def test_a_lock_is_waited_for_until_the_limit_and_dropped_with_its_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = forks()
    held = context.Event()
    holder = context.Process(target=_hold, args=(tmp_path / "lock", held))
    holder.start()
    assert held.wait(60)
    with caplog.at_level(logging.WARNING), locked(tmp_path / "lock", 0.1):
        assert "lock has been locked for 0 s; building beside its holder" in caplog.text
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    caplog.clear()
    with caplog.at_level(logging.WARNING), locked(tmp_path / "lock", 10.0):
        assert not caplog.text
    with locked(tmp_path / "lock", 10.0):  # free again after the block
        assert not caplog.text
