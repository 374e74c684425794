"""A program reaches no other process, and leaves neither processes nor files behind."""

from __future__ import annotations

import contextlib
import os
import textwrap
from pathlib import Path

import pytest

from evaluators.records import Outcome
from tests.evaluators.hostile.programs import TASK, assert_next_is_ok, program
from tests.evaluators.outcomes import assert_ok

MANY_FILES = """
for number in range(100000):
    with open(f"file-{number}", "wb") as file:
        file.write(bytes(1 << 20))
"""
OTHERS = """
found = []
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) != os.getpid():
        try:
            os.close(os.open(f"/proc/{name}/mem", os.O_RDWR))
            found.append(name)
        except OSError:
            pass
libc = ctypes.CDLL(None)
found += [process for process in range(1, 5000) if process != os.getpid() and libc.ptrace(16, process, 0, 0) == 0]
if found:
    raise RuntimeError(f"in reach: {found}")
"""
TRUNCATE = """
for name in os.listdir("/proc/self/fd"):
    for size in (0, 1 << 40):
        try:
            os.ftruncate(int(name), size)
        except OSError:
            pass
"""
DEEP_FOLDERS = """
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
"""


@pytest.mark.parametrize(
    "forward",
    [
        "os.kill(os.getppid(), 9)",
        "os.kill(-1, 9)",
        "os.killpg(0, 9)",
        "os.kill(os.getpid(), 19)",
        OTHERS,
        TRUNCATE,
        DEEP_FOLDERS,
        MANY_FILES,
    ],
    ids=["parent", "everybody", "group", "stops itself", "other processes", "shrinks memory", "deep folders", "files"],
)
def test_a_hostile_program_reaches_nobody_else(evaluator, forward) -> None:
    verdict = evaluator.evaluate(
        TASK, program(top="done = []", forward=f"if not done:\n    done.append(1)\n{textwrap.indent(forward, '    ')}")
    )
    if forward is OTHERS:
        assert_ok(verdict)
    assert verdict.outcome in (Outcome.OK, Outcome.RUNTIME_ERROR, Outcome.TIMEOUT), verdict.message
    assert_next_is_ok(evaluator)


def _processes_named(name: str) -> list[str]:
    found = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if comm.read_text().strip() == name:
                found.append(comm.parent.name)
    return found


def test_a_daemon_does_not_survive_its_program(evaluator) -> None:
    name = f"ws-daemon-{os.getpid() % 10000}"
    forward = f"""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, b"{name}", 0, 0, 0)
            os.closerange(0, 100)
            time.sleep(300)
        os._exit(0)
    time.sleep(0.2)
    os._exit(3)
    """
    verdict = evaluator.evaluate(TASK, program(forward=forward))
    assert verdict.outcome is Outcome.RUNTIME_ERROR
    assert _processes_named(name) == []


def test_a_program_leaves_nothing_behind(evaluator) -> None:
    mark = Path(f"/tmp/ws-leftover-{os.getpid()}")
    forward = f"""
    open("inside", "w").close()
    for place in ("{mark}", "/var/tmp/{mark.name}", "/dev/shm/{mark.name}"):
        try:
            open(place, "w").close()
        except OSError:
            pass
    raise RuntimeError(f"folder={{os.getcwd()}}")
    """
    verdict = evaluator.evaluate(TASK, program(forward=forward))
    folder = Path(verdict.message.partition("folder=")[2].splitlines()[0])
    assert folder.name.startswith("warpsmith-runner-")
    assert not folder.exists()
    left = [place for place in (mark, Path("/var/tmp", mark.name), Path("/dev/shm", mark.name)) if place.exists()]
    for place in left:
        place.unlink()
    if "read_only_host" not in verdict.evaluator["containment"]:
        pytest.skip("this host does not let the evaluator mount")
    assert left == []
