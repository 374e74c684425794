"""A program reads nothing of the judge or of other processes, and reaches and leaves no more than each kind of host is
known to leave open. Each attack succeeds if nothing contains it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

ATTACKS = Path(__file__).with_name("attacks.py")
REPORT = """
    def __init__(self):
        super().__init__()
        found = report(json.loads({about!r}))
        got = [name for name, value in found.items() if value is True]
        raise RuntimeError("report=" + json.dumps([got, len(found)]) + "=")
"""
OPEN_WITHOUT_NAMESPACES = {"leave_lock"}  # by any process that may read the lock file
OPEN = {
    "namespaces": set(),
    "container": OPEN_WITHOUT_NAMESPACES,
    "user": OPEN_WITHOUT_NAMESPACES,
    "bare": OPEN_WITHOUT_NAMESPACES | {"reach_judge_by_signal", "leave_files"},
}


@pytest.fixture(scope="module")
def listening() -> Iterator[dict[str, Any]]:
    """Sockets of another process, open to all."""
    folder = Path(tempfile.mkdtemp(prefix="ws-", dir="/tmp"))
    folder.chmod(0o755)
    name = f"warpsmith-test-{os.getpid()}"
    names = {name: str(folder / name) for name in ("socket", "datagrams")}
    with (
        socket.socket() as port,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as filed,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        port.bind(("127.0.0.1", 0))
        abstract.bind("\0" + name)
        for one, path in ((filed, names["socket"]), (datagrams, names["datagrams"])):
            one.bind(path)
            Path(path).chmod(0o777)
        for one in (port, abstract, filed):
            one.listen(64)
        yield {"port": port.getsockname()[1], "abstract": name, **names}
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def about(judges, listening) -> dict[str, dict[str, Any]]:
    """By mode, what attacks are told: more than a program could find out."""
    installed = Path(torch.__file__).parent
    shared = [installed, installed / "__pycache__", installed.parent, Path(__file__).parents[3] / "evaluators"]
    found = {}
    for mode, judge in judges.items():
        lock = judge.folder / "warpsmith-slots" / "somebody"
        judge.about  # noqa: B018  (waits until it has started)
        lock.parent.mkdir(exist_ok=True)
        lock.parent.chmod(0o1777)
        lock.touch(0o644)
        places = [*judge.about["places"], "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", *map(str, shared)]
        name = f"warpsmith-left-{mode}-{os.getpid()}"
        found[mode] = {**judge.about, **listening, "lock": str(lock), "places": places, "file": name}
    return found


def _left(about: dict[str, Any]) -> list[str]:
    """Removes the files that a program has left behind, and returns their folders."""
    left = [place for place in about["places"] if (Path(place) / about["file"]).exists()]
    for place in left:
        (Path(place) / about["file"]).unlink()
    return left


@pytest.fixture(scope="module")
def got(judges, about) -> dict[str, set[str]]:
    """By mode, the attacks of a program that succeeded."""
    found = {}
    for mode, judge in judges.items():
        source = ATTACKS.read_text().partition("if __name__")[0] + "\nimport torch\nimport torch.nn as nn\n"
        source += "class ModelNew(nn.Module):" + REPORT.format(about=json.dumps(about[mode]))
        verdict = judge.judge(source)
        assert verdict["outcome"] == "runtime_error", verdict
        assert "report=" in verdict["message"], verdict
        succeeded, tried = json.loads(verdict["message"].split("report=")[1].split("=")[0])
        assert tried > 35
        found[mode] = set(succeeded) - {"leave_files"} | ({"leave_files"} if _left(about[mode]) else set())
    return found


@pytest.mark.parametrize("mode", OPEN)
def test_a_program_reads_nothing_of_the_judge_or_of_another(got, mode) -> None:
    assert {name for name in got[mode] if name.startswith("read_")} == set()


@pytest.mark.parametrize("mode", OPEN)
def test_a_program_reaches_and_leaves_no_more_than_is_known_to_be_open(got, mode) -> None:
    assert {name for name in got[mode] if not name.startswith("read_")} == OPEN[mode]


def test_each_attack_succeeds_if_nothing_contains_it(judges, about) -> None:
    secret = judges["container"].secret
    with tempfile.TemporaryFile() as file:
        file.write(secret.encode())
        file.flush()
        told = json.dumps({**about["container"], "held": secret})
        done = subprocess.run(
            [sys.executable, str(ATTACKS), told],
            env={**os.environ, "WARPSMITH_SECRET": secret},
            pass_fds=[file.fileno()],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            preexec_fn=_with_core_dumps,
        )
    found = json.loads(done.stdout)
    assert len(_left(about["container"])) > 5
    absent = {name for name, value in found.items() if value in (errno.ENOSYS, errno.ENOENT, errno.ENODEV)}
    assert {name: value for name, value in found.items() if value is not True and name not in absent} == {}
    assert absent <= {"read_performance_events", "read_page_faults", "read_compare", "leave_message_queue"}


def _with_core_dumps() -> None:
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most or resource.RLIM_INFINITY))
