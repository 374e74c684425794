"""What the kernel refuses a contained process: writing elsewhere, and calls that no program needs."""

from __future__ import annotations

import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from evaluators.sandbox.seccomp import filter_program

SCRIPT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
from evaluators.sandbox.{module} import {function}
if not {function}({arguments}):
    sys.exit(77)
def refused(work):
    try:
        work()
    except PermissionError:
        return True
    return False
{body}
"""


def run(tmp_path: Path, module: str, function: str, arguments: str, body: str) -> str:
    script = SCRIPT.format(module=module, function=function, arguments=arguments, body=body)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    if done.returncode == 77:
        pytest.skip("this kernel does not have it")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_process_cannot_leave_its_cores_or_trace_others(tmp_path) -> None:
    body = "print(refused(lambda: os.sched_setaffinity(0, {0})), ctypes.CDLL(None).ptrace(0, 0, 0, 0))"
    body += "\nprint(len(os.sched_getaffinity(0)) > 0, os.getpid() > 0)"
    assert run(tmp_path, "seccomp", "refuse_system_calls", "", body).split() == ["True", "-1", "True", "True"]


def test_what_it_starts_is_under_the_filter_too(tmp_path) -> None:
    child = "import os\\ntry: os.sched_setaffinity(0, {0})\\nexcept PermissionError: print('refused')"
    body = f'import subprocess\nprint(subprocess.run([sys.executable, "-c", "{child}"], capture_output=True).stdout)'
    assert "refused" in run(tmp_path, "seccomp", "refuse_system_calls", "", body)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 has two sets of numbers")
def test_other_numbers_of_the_same_calls_are_refused(tmp_path) -> None:
    body = "import errno\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.syscall(203 | 0x40000000, 0, 0, 0)"
    body += "\nprint(ctypes.get_errno() == errno.EPERM)"
    assert run(tmp_path, "seccomp", "refuse_system_calls", "", body) == "True"


def test_writing_is_for_ones_own_folder(tmp_path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
        (folder / "file").write_text("as it was")
    body = f"open('{mine}/new', 'w').close()\nprint(refused(lambda: open('{other}/new', 'w')))"
    body += f"\nprint(refused(lambda: open('{other}/file', 'a')), refused(lambda: os.remove('{other}/file')))"
    body += f"\nprint(open('{other}/file').read() == 'as it was', open(os.devnull, 'w').close() is None)"
    words = run(tmp_path, "landlock", "restrict_writing", f"('{mine}', '/dev')", body).split()
    assert words == ["True"] * 5
    assert (mine / "new").exists()
    assert not (other / "new").exists()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_the_filter_lands_on_a_verdict(machine) -> None:
    program = filter_program(machine)
    assert program is not None
    lines = list(struct.iter_unpack("HBBI", program))
    for index, (code, jump_true, jump_false, _) in enumerate(lines):
        if code in (0x15, 0x35):
            assert index + 1 + jump_true < len(lines)
            assert index + 1 + jump_false < len(lines)
    refused = [index for index, line in enumerate(lines) if line[0] in (0x15, 0x35) and index > 3]
    assert all(lines[index + 1 + lines[index][1]] == (0x06, 0, 0, 0x00050001) for index in refused)


def test_another_machine_has_no_filter() -> None:
    assert filter_program("riscv64") is None


def test_a_verdict_says_what_was_active(evaluator) -> None:
    source = "import torch, os\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    source += "        os.sched_setaffinity(0, range(os.cpu_count()))\n        return torch.softmax(x, dim=-1)\n"
    verdict = evaluator.evaluate("level1/softmax", source)
    if "seccomp" not in verdict.evaluator["containment"]:
        pytest.skip(f"no filter on {platform.machine()} here")
    assert verdict.outcome == "runtime_error"
    assert "PermissionError" in verdict.message
    assert os.sched_getaffinity(0)
