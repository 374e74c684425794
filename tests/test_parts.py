"""The suite's parts run side by side, fewer on cores that others keep busy."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from tests.parts import BUSY, IDLE, parts


def test_a_loop_on_each_core_leaves_room_for_few() -> None:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        assert parts() == BUSY
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_idle_cores_leave_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_percent", lambda seconds: 20.0)
    assert parts() == IDLE
