"""The kernel refuses a contained process to write outside its places, and system calls that no program needs."""

from __future__ import annotations

import os
import platform
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from evaluators.sandbox import seccomp
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


def test_nothing_can_be_set_up_that_works_while_a_process_is_stopped(tmp_path) -> None:
    body = "import select\nlibc = ctypes.CDLL(None)\nprint(refused(select.epoll), libc.timerfd_create(1, 0))"
    body += "\nprint(libc.syscall(206 if os.uname().machine == 'x86_64' else 0, 1, 0))"
    assert run(tmp_path, "seccomp", "refuse_system_calls", "", body).split() == ["True", "-1", "-1"]


def test_a_process_that_it_starts_is_under_the_filter_too(tmp_path) -> None:
    child = "import os\\ntry: os.sched_setaffinity(0, {0})\\nexcept PermissionError: print('refused')"
    body = f'import subprocess\nprint(subprocess.run([sys.executable, "-c", "{child}"], capture_output=True).stdout)'
    assert "refused" in run(tmp_path, "seccomp", "refuse_system_calls", "", body)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 has two sets of numbers")
def test_other_numbers_of_the_same_calls_are_refused(tmp_path) -> None:
    body = "import errno\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.syscall(203 | 0x40000000, 0, 0, 0)"
    body += "\nprint(ctypes.get_errno() == errno.EPERM)"
    assert run(tmp_path, "seccomp", "refuse_system_calls", "", body) == "True"


WAYS_TO_CONTINUE = {
    "by itself": "os.kill(os.getpid(), 18)",
    "by itself, its group": "os.killpg(0, 18)",
    "by one of its threads": "signal.pthread_kill(threading.get_ident(), 18)",
    "by a descriptor of itself": "signal.pidfd_send_signal(os.pidfd_open(os.getpid()), 18)",
    "when its child ends": "call(56 if x86 else 220, 18, 0, 0, 0, 0) or os._exit(0)",
    "when its parent ends": "call(157 if x86 else 167, 1, 18, 0, 0, 0)",
    "when its terminal is hung up": "os.openpty()",
}
CONTINUED = """
import signal, threading
x86 = os.uname().machine == "x86_64"
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    result = libc.syscall(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "a system call")
    return result
print(refused(lambda: {way}))
"""


@pytest.mark.parametrize("way", WAYS_TO_CONTINUE)
def test_no_process_of_its_group_continues_a_stopped_process(tmp_path, way) -> None:
    body = CONTINUED.format(way=WAYS_TO_CONTINUE[way])
    assert run(tmp_path, "seccomp", "refuse_system_calls", "", body) == "True"
    assert (
        run(tmp_path, "seccomp", "filter_program", "'x86_64'", body) == "False"
    )  # this only computes a filter, and puts the process under none


def test_programs_start_others_and_signal_them_under_the_filter(tmp_path) -> None:
    body = "import multiprocessing, signal, subprocess\nfrom torch.multiprocessing import _prctl_pr_set_pdeathsig"
    body += "\n_prctl_pr_set_pdeathsig(signal.SIGINT)\nchild = subprocess.Popen(['sleep', '60'])"
    body += "\nos.kill(child.pid, signal.SIGTERM)\nprint(child.wait())"
    body += "\nwith multiprocessing.get_context('fork').Pool(1) as pool:\n    print(pool.apply(abs, (-3,)))"
    body += "\nwith multiprocessing.pool.ThreadPool(1) as pool:\n    print(pool.apply(abs, (-4,)))"
    assert run(tmp_path, "seccomp", "refuse_system_calls", "", body).split() == ["-15", "3", "4"]


@pytest.mark.parametrize("gpu", [True, False])
def test_no_process_makes_a_socket_of_a_network(tmp_path, gpu) -> None:
    body = "import socket\nfor family in ('AF_INET', 'AF_INET6', 'AF_NETLINK', 'AF_PACKET', 'AF_VSOCK'):"
    body += "\n    print(refused(lambda: socket.socket(getattr(socket, family), socket.SOCK_DGRAM)))"
    body += "\nprint(refused(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)))"
    body += "\nprint(socket.socket(socket.AF_UNIX).close() is None, len(socket.socketpair()) == 2)"
    body += "\nprint(refused(lambda: socket.socket(socket.AF_UNIX).connect('/nowhere')))"
    assert run(tmp_path, "seccomp", "refuse_system_calls", f"gpu={gpu}", body).split() == ["True"] * 9


def test_a_process_writes_only_in_its_own_folder(tmp_path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
        (folder / "file").write_text("as it was")
    body = f"open('{mine}/new', 'w').close()\nprint(refused(lambda: open('{other}/new', 'w')))"
    body += f"\nprint(refused(lambda: open('{other}/file', 'a')), refused(lambda: os.remove('{other}/file')))"
    body += f"\nprint(open('{other}/file').read() == 'as it was', open(os.devnull, 'w').close() is None)"
    words = run(tmp_path, "landlock", "restrict_self", f"('{mine}', '/dev')", body).split()
    assert words == ["True"] * 5
    assert (mine / "new").exists()
    assert not (other / "new").exists()


ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, REFUSED, PRETENDED, ABSENT = 0x7FFF0000, 0x00050001, 0x00050000, 0x00050026


def verdict_of(machine: str, number: int, *arguments: int, architecture: int | None = None, gpu: bool = False) -> int:
    """The filter's verdict on a call, computed as the kernel's interpreter does."""
    program = filter_program(machine, gpu=gpu)
    assert program is not None
    arch = ARCHITECTURES[machine] if architecture is None else architecture
    data = struct.pack("<IIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    lines = list(struct.iter_unpack("HBBI", program))
    at = value = 0
    while True:
        code, jump_true, jump_false, constant = lines[at]
        at += 1
        if code == 0x06:
            return constant
        if code == 0x20:
            (value,) = struct.unpack_from("<I", data, constant)
        elif code == 0x54:
            value &= constant
        else:
            holds = {0x15: value == constant, 0x35: value >= constant}[code]
            at += jump_true if holds else jump_false


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_gives_every_call_its_verdict(machine) -> None:
    column = 0 if machine == "x86_64" else 1
    verdicts = {name: verdict_of(machine, numbers[column], 7, 10) for name, numbers in seccomp._REFUSED.items()}
    assert set(verdicts.values()) == {REFUSED}, verdicts
    assert {verdict_of(machine, numbers[column]) for numbers in seccomp._PRETENDED.values()} == {PRETENDED}
    assert verdict_of(machine, seccomp._ABSENT["clone3"][column]) == ABSENT
    conditional = {name: row[0][column] for name, row in seccomp._REFUSED_IF.items()}
    assert verdict_of(machine, conditional["clone"], 0x01200011) == ALLOWED  # as fork calls it
    assert verdict_of(machine, conditional["clone"], 0x003D0F00) == ALLOWED  # as threads are made
    assert verdict_of(machine, conditional["clone"], 0x10000011) == REFUSED  # a user namespace
    assert verdict_of(machine, conditional["clone"], 0x00008011) == REFUSED  # a sibling of the runner, not its child
    assert verdict_of(machine, conditional["clone"], 0x01200000) == ALLOWED  # a child that sends no signal when it ends
    for number in set(range(1, 256)) - {signal.SIGCHLD}:
        assert verdict_of(machine, conditional["clone"], 0x01200000 | number) == REFUSED, number
    assert verdict_of(machine, conditional["prlimit64"], 0) == ALLOWED
    assert verdict_of(machine, conditional["prlimit64"], 1) == REFUSED
    assert verdict_of(machine, conditional["fcntl"], 3, 1) == ALLOWED
    assert verdict_of(machine, conditional["fcntl"], 3, 10) == REFUSED
    assert verdict_of(machine, conditional["ioctl"], 3, 0x5401) == ALLOWED  # whether it is a terminal
    assert verdict_of(machine, conditional["ioctl"], 3, 0x40045431) == REFUSED
    assert {verdict_of(machine, conditional["prctl"], 1, number) for number in {*range(65)} - {18}} == {ALLOWED}
    assert {verdict_of(machine, conditional["prctl"], option, 18) for option in (0, *range(2, 80))} == {ALLOWED}
    assert verdict_of(machine, conditional["prctl"], 1, 18) == REFUSED
    for name, before in (("kill", 1), ("tkill", 1), ("tgkill", 2), ("rt_sigqueueinfo", 1), ("rt_tgsigqueueinfo", 2)):
        assert verdict_of(machine, conditional[name], *[18] * before, 0) == ALLOWED, name
        assert verdict_of(machine, conditional[name], *[7] * before, signal.SIGCONT) == REFUSED, name
    of_all_processes = {
        command for command in range(513) if verdict_of(machine, conditional["membarrier"], command) == REFUSED
    }
    assert of_all_processes == {1, 2, 4}, "what a process asks of its own threads is allowed"
    assert verdict_of(machine, conditional["pidfd_send_signal"], 18, 19) == ALLOWED
    assert verdict_of(machine, conditional["pidfd_send_signal"], 3, 18) == REFUSED
    listed = {numbers[column] for table in (seccomp._REFUSED, seccomp._PRETENDED) for numbers in table.values()}
    listed |= {*conditional.values(), seccomp._ABSENT["clone3"][column]}
    assert {verdict_of(machine, number) for number in set(range(500)) - listed} == {ALLOWED}
    assert verdict_of(machine, 1, architecture=0x40000003) == REFUSED
    with_gpu = {name for name in verdicts if verdict_of(machine, seccomp._REFUSED[name][column], gpu=True) == ALLOWED}
    in_interrupts = {"io_setup", "timerfd_create", "epoll_create", "epoll_create1"}
    assert with_gpu == {"bind", "listen", *in_interrupts}
    for gpu in (True, False):
        assert verdict_of(machine, conditional["socket"], 1, 1 | 0x80800, gpu=gpu) == ALLOWED  # a stream, close-on-exec
        assert verdict_of(machine, conditional["socketpair"], 1, 1, gpu=gpu) == ALLOWED
        others = {verdict_of(machine, conditional["socket"], family, 1, gpu=gpu) for family in (2, 10, 16, 17, 40)}
        others |= {verdict_of(machine, conditional[name], 1, 2 | 0x800, gpu=gpu) for name in ("socket", "socketpair")}
        assert others == {REFUSED}


def test_another_machine_has_no_filter() -> None:
    assert filter_program("riscv64") is None


def test_a_verdict_names_the_active_containment(evaluator) -> None:
    source = "import torch, os\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    source += "        os.sched_setaffinity(0, range(os.cpu_count()))\n        return torch.softmax(x, dim=-1)\n"
    verdict = evaluator.evaluate("level1/softmax", source)
    if "seccomp" not in verdict.evaluator["containment"]:
        pytest.skip(f"no filter on {platform.machine()} here")
    assert verdict.outcome == "runtime_error"
    assert "PermissionError" in verdict.message
    assert os.sched_getaffinity(0)
