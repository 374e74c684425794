"""Without root, and without the namespaces that a host may refuse, the rest of the containment still holds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

import evaluators

USER = 54321
SCRIPT = """
import json, sys
from configs.schema import LimitsConfig
from evaluators.evaluator import Evaluator
from evaluators.records import Task

MODEL = '''
import os, sys, time
import torch
import torch.nn as nn
class {name}(nn.Module):
    def forward(self, x):
        {forward}
        return torch.tanh(x @ x)
'''
task = Task("test/a", 1, "a", MODEL.format(name="Model", forward="") + '''
def get_inputs(): return [torch.randn(128, 128)]
def get_init_inputs(): return []
''')
programs = {
    "good": "",
    "memory": "keep = [bytearray(1 << 26) for _ in range(100)]",
    "forks": "exec('while True:\\\\n try: os.fork()\\\\n except OSError: pass')",
    "daemon": "os.fork() or (os.setsid(), os.closerange(0, 99), os.fork() and os._exit(0), time.sleep(9)); os._exit(3)",
    "parent": "parent = os.getppid(); parent and open(f'/proc/{parent}/mem', 'r+b')",
    "again": "pass",
}
limits = LimitsConfig(start_seconds=4, call_seconds=2, memory_gib=0.5)
with Evaluator("cpu", limits=limits) as evaluator:
    for name, forward in programs.items():
        verdict = evaluator.evaluate(task, MODEL.format(name="ModelNew", forward=forward) + f"\\nn = '{name}'\\n")
        print(json.dumps([name, verdict.outcome, verdict.message, verdict.evaluator["containment"]]), flush=True)
"""


def _private_home() -> Path | None:
    """The topmost folder above Python that another user may not enter, or None."""
    place = Path(sys.executable).resolve()
    return next((above for above in reversed(place.parents) if not above.stat().st_mode & 0o001), None)


def _run_as_user(folder: Path, chroot: bool) -> subprocess.CompletedProcess[str]:
    """Runs SCRIPT as another user. `chroot`: within a chroot, where the kernel gives that user no namespaces."""
    os.chown(folder, USER, USER)
    script = folder / "script.py"
    script.write_text(SCRIPT)
    commands = ["set -e"]
    if private := _private_home():  # makes Python reachable, in this process's own view of the files
        kept = folder / "kept"
        commands += [
            f"mkdir {kept}",
            f"mount --bind {sys.base_prefix} {kept}",
            f"mount -t tmpfs -o mode=755 tmpfs {private}",
            f"mkdir -p {sys.base_prefix}",
            f"mount --bind {kept} {sys.base_prefix}",
        ]
    enter = ""
    if chroot:
        commands += [f"mkdir {folder}/root", f"mount --rbind / {folder}/root"]
        enter = f"chroot {folder}/root "
    python = f"{sys.executable} {script}"
    commands.append(f"exec {enter}setpriv --reuid {USER} --regid {USER} --clear-groups {python}")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(evaluators.__file__).parent.parent),
        "TMPDIR": str(folder),
        "HOME": str(folder),
    }
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", "\n".join(commands)],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("namespaces", [True, False], ids=["with namespaces", "without"])
def test_an_evaluator_without_root_contains_its_programs(namespaces: bool) -> None:
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "chroot"))):
        pytest.skip("only root can become another user, with util-linux")
    if subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False).returncode:
        pytest.skip("this host lets nobody mount")
    folder = Path(tempfile.mkdtemp(prefix="ws-", dir="/tmp"))
    try:
        done = _run_as_user(folder, chroot=not namespaces)
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    outcomes = {name: outcome for name, outcome, _, _ in rows}
    expected = {"good": "ok", "memory": "runtime_error", "forks": "timeout", "daemon": "runtime_error", "again": "ok"}
    assert {name: outcomes[name] for name in expected} == expected, textwrap.indent(done.stdout, "  ")
    containment = rows[0][3].split()
    assert "own_user" not in containment
    assert {"rlimits", "session", "no_new_privileges"} <= set(containment)
    if namespaces:
        assert {"pid_namespace", "network_namespace", "read_only_host"} <= set(containment)
        assert outcomes["parent"] == "ok"  # it has none
    else:
        assert not any(name.endswith("namespace") for name in containment)
        assert outcomes["parent"] == "runtime_error"  # it may not look into it
    left = [
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and entry.exists() and entry.stat().st_uid == USER
    ]
    assert left == []
