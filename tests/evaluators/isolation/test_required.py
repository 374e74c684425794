"""An evaluator refuses to start on a host that does not give the containment that is required of it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

import evaluators
from configs.schema import CONTAINMENT
from evaluators.compile.builder import Builder
from evaluators.evaluator import Evaluator
from evaluators.failures import ContainmentError
from evaluators.host.containment import MEANS
from evaluators.host.cpu_device import CpuDevice

HERE = Path(__file__).parent
RESTRICTED = """
import os, sys
sys.path.insert(0, {here!r})
from judge_process import restrict
restrict({mode!r}, {folder!r})
os.execv(sys.executable, [sys.executable, "-c", {script!r}])
"""
START = """
from evaluators.evaluator import Evaluator
from evaluators.failures import ContainmentError
words, missing = {words!r}, ()
while True:
    with Evaluator("cpu", require_containment=words) as evaluator:
        try:
            evaluator.start()
            break
        except ContainmentError as error:
            missing = {{word for word in words if f"{{word}}: " in str(error)}}
            words = [word for word in words if word not in missing]
            assert missing
print(*words)
"""
SCOPES = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) >= 6  # Landlock of Linux 6.12
GIVEN = {
    "container": {"network", "filesystem", "user", "processes", "system_calls"},
    "user": {"network", "filesystem", "system_calls"} | ({"processes"} if SCOPES else set()),
    "bare": {"network", "system_calls"},
}
SOCKETS = """
import os, socket
from evaluators.sandbox import Containment, contain_self
pid = os.fork()
if pid:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
reading, writing = os.pipe()
limits = dict(memory_bytes=1 << 30, processes=64, file_bytes=1 << 20, cpu_seconds=60, user=61999, folder={folder!r})
out = os.dup(1)
active = contain_self(Containment(**limits, maps_device=True), {{out}}, False)
assert not any(name.endswith("namespace") for name in active), active
found = []
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
    try:
        socket.socket(family, socket.SOCK_DGRAM).close()
    except PermissionError:
        found.append("refused")
found.append("own" if socket.socketpair() else "")
os.write(out, " ".join(found).encode())
os._exit(0)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    made = Path(tempfile.mkdtemp(prefix="ws-", dir="/tmp"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


def run_restricted(mode: str, folder: Path, script: str) -> str:
    """The output of a script on a host of the mode."""
    text = RESTRICTED.format(here=str(HERE), mode=mode, folder=str(folder), script=script)
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(Path(evaluators.__file__).parents[1]),
        "TMPDIR": str(folder),
        "HOME": str(folder),
    }
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_word_has_means() -> None:
    assert set(MEANS) == set(CONTAINMENT)


@pytest.mark.slow
@pytest.mark.parametrize("mode", GIVEN)
def test_an_evaluator_starts_only_where_the_host_gives_what_is_required(can_restrict, folder, mode) -> None:
    script = START.format(words=CONTAINMENT)
    assert set(run_restricted(mode, folder, script).split()) == GIVEN[mode]


@pytest.mark.slow
def test_a_process_with_a_gpu_makes_no_ip_socket_on_a_host_without_namespaces(can_restrict, folder) -> None:
    assert run_restricted("container", folder, SOCKETS.format(folder=str(folder))) == "refused refused refused own"


@pytest.mark.slow
def test_the_message_names_each_missing_measure_with_its_remedy(monkeypatch, limits) -> None:
    monkeypatch.setitem(MEANS, "user", frozenset())
    monkeypatch.setitem(MEANS, "network", frozenset({"no_kernel_has_it"}))
    with Evaluator("cpu", limits=limits, require_containment=["network", "filesystem", "user"]) as evaluator:
        with pytest.raises(ContainmentError, match=r"network: allow namespaces.*user: start as root") as raised:
            evaluator.start()
        assert "filesystem" not in str(raised.value)
        assert "\n" not in str(raised.value)
        with pytest.raises(ContainmentError):  # nor does it evaluate without having been started
            evaluator.evaluate("level1/softmax", "class ModelNew: pass")


@pytest.mark.slow
def test_a_builder_refuses_to_start_likewise(monkeypatch, limits, folder) -> None:
    monkeypatch.setitem(MEANS, "user", frozenset())
    for required, is_given in ((("network", "filesystem"), True), (("user",), False)):
        builder = Builder(CpuDevice(), folder, limits, require_containment=required)
        try:
            with nullcontext() if is_given else pytest.raises(ContainmentError):
                builder.start()
        finally:
            builder.close()


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(ValueError, match="networks is not one of network, filesystem"):
        Evaluator("cpu", require_containment=["networks"])
