"""Evaluators on hosts that allow different kinds of containment."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evaluators

HERE = Path(__file__).parent
TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x @ x)

def get_inputs():
    return [torch.randn(128, 128)]

def get_init_inputs():
    return []
"""
CANDIDATE = TASK.replace("class Model(", "class ModelNew(").partition("def get_inputs")[0]


class JudgeProcess:
    """An evaluator in a process of `judge_process.py`, and what attacks are told of it."""

    def __init__(self, mode: str, disk: str = "") -> None:
        """`disk`: the size of a disk of its own, in mount's words."""
        self.mode = mode
        self.folder = Path(tempfile.mkdtemp(prefix="ws-", dir="/tmp"))
        self.has_disk = bool(disk)
        if disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk}", "tmpfs", str(self.folder)], check=True)
        self.folder.chmod(0o777)
        self.secret = f"warpsmith-secret-{secrets.token_hex(16)}"
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(evaluators.__file__).parents[1]),
            "TMPDIR": str(self.folder),
            "HOME": str(self.folder),
            "WARPSMITH_SECRET": self.secret,
        }
        command = [sys.executable, str(HERE / "judge_process.py"), mode, str(self.folder)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, cwd="/", **pipes)
        self._about: dict[str, Any] = {}

    @property
    def about(self) -> dict[str, Any]:
        if not self._about:
            assert self.process.stdout is not None
            self._about = json.loads(self.process.stdout.readline())
        return self._about

    def judge(self, source: str) -> dict[str, Any]:
        """Outcome, message and active containment of a candidate's verdict."""
        assert self.about
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"task": TASK, "source": source}) + "\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.process.kill()
        self.process.wait()
        if self.has_disk:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def can_restrict() -> None:
    """Skips tests on machines that cannot stand for hosts that allow less."""
    if os.geteuid() != 0 or not shutil.which("mount") or platform.machine() != "x86_64":
        pytest.skip("only root can make hosts that allow less, and calls have their numbers on x86-64")
    if subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False).returncode:
        pytest.skip("this host lets nobody mount")


@pytest.fixture(scope="session")
def judges(can_restrict) -> Iterator[dict[str, JudgeProcess]]:
    """Evaluators by mode (`judge_process.py`); they start at the same time."""
    made = {mode: JudgeProcess(mode) for mode in ("namespaces", "container", "user", "bare")}
    try:
        yield made
    finally:
        for one in made.values():
            one.close()
