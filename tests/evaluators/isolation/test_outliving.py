"""All that a program starts is gone when its verdict is there, whatever it does against that; and the wait for a
process that cannot be ended is bounded."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluators.sandbox.zygote import Zygote

SURVIVORS = Path(__file__).with_name("survivors.py")
MODES = ("namespaces", "container", "user", "bare")
WAYS = ("daemon", "group", "stopped", "adopter", "waits_in_the_kernel", "hops", "multiplies")
ENDING = """
class ModelNew(nn.Module):
    def forward(self, x):
        hold({held!r})
        for way, mark in {marks}:
            start(way, mark)
        os._exit(3)
"""


def alive(mark: str) -> list[int]:
    """Ids of the processes of this name that have not ended."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                about = Path(f"/proc/{name}/stat").read_text()
                if f"({mark})" in about and about.rpartition(")")[2].split()[0] not in "ZX":
                    found.append(int(name))
    return found


def is_held(path: Path) -> bool:
    """Whether any process is left that has locked the file."""
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def end_all(mark: str) -> None:
    """Ends the processes of this name, which may be stopped or forking, group by group."""
    for _ in range(2000):
        found = alive(mark)
        if not found:
            return
        for process in found:
            with contextlib.suppress(OSError):
                group = os.getpgid(process)
                if group != os.getpgrp():
                    os.killpg(group, signal.SIGKILL)
                os.kill(process, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_nothing_outlives_its_program(judges, mode) -> None:
    marks = {way: f"ws{os.getpid() % 10000}{mode[0]}{index}" for index, way in enumerate(WAYS)}
    held = judges[mode].folder / "held"
    held.touch()
    held.chmod(0o644)
    source = SURVIVORS.read_text().partition("if __name__")[0] + "\nimport torch\nimport torch.nn as nn\n"
    verdict = judges[mode].judge(source + ENDING.format(marks=list(marks.items()), held=str(held)))
    is_left = is_held(held)
    left = {way: alive(mark) for way, mark in marks.items()}
    for mark in marks.values():
        end_all(mark)
    assert verdict["outcome"] in ("runtime_error", "timeout"), verdict  # a time-out if other processes hold its socket
    assert not is_left
    assert left == {way: [] for way in WAYS}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_survives_if_nothing_contains_it(way, tmp_path) -> None:
    mark = f"ws{os.getpid() % 10000}x{WAYS.index(way)}"
    held = tmp_path / "held"
    held.touch()
    parent = subprocess.Popen([sys.executable, str(SURVIVORS), way, mark, str(held)], start_new_session=True)
    try:
        assert parent.wait(30) == 0
        assert alive(mark) or is_held(held)  # /proc does not show a process that hops
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        end_all(mark)


def test_the_wait_for_a_runner_that_cannot_be_ended_is_bounded(monkeypatch) -> None:
    """The kernel ends every killed process. Here none is killed, as if one waited for a disk that does not answer."""
    monkeypatch.setattr("evaluators.sandbox.zygote._END_SECONDS", 0.1)
    monkeypatch.setattr("evaluators.sandbox.zygote._kill_group", lambda group: True)
    monkeypatch.setattr("evaluators.sandbox.zygote.os.kill", lambda process, number: None)
    monkeypatch.setattr(Zygote, "_orphans", lambda self: [])
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        zygote = object.__new__(Zygote)
        zygote.runners = {child.pid}
        start = time.monotonic()
        assert zygote.reap(child.pid) == {"status": None, "left": 1}
        assert time.monotonic() - start < 5.0
    finally:
        monkeypatch.undo()
        child.kill()
        child.wait()
