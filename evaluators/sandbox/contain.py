"""What a runner is allowed: resource limits, a user of its own, namespaces of its own, nothing inherited.

Called in a freshly forked child before any line of a candidate runs. Every step that the host refuses is left out and
missing from the returned list, which the verdict records; nothing here may raise for lack of privilege.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from dataclasses import dataclass
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

# <linux/sched.h>, <linux/prctl.h>, <linux/capability.h>
_CLONE_NEWNS, _CLONE_NEWIPC = 0x00020000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 8, 38, 47
_CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION_3 = 0x20080522


@dataclass(frozen=True)
class Containment:
    """Limits of one runner. Bytes, counts and seconds; `user` is the uid it gets when we are root."""

    memory_bytes: int
    processes: int
    file_bytes: int
    cpu_seconds: int
    user: int
    folder: str
    cores: tuple[int, ...] = ()


def _unshare(flags: int) -> bool:
    return _libc.unshare(flags) == 0


def enter_user_namespace() -> bool:
    """Gives an unprivileged process the right to make namespaces, where the host allows it. True when root already."""
    if os.geteuid() == 0:
        return True
    user, group = os.geteuid(), os.getegid()
    if not _unshare(_CLONE_NEWUSER):
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


@contextlib.contextmanager
def new_pid_namespace():  # type: ignore[no-untyped-def]
    """Within the block, the next forked child is process 1 of a new PID namespace: it sees and signals nobody outside,
    and everything it leaves behind dies with it. Yields whether the host allowed it."""
    with open("/proc/self/ns/pid", "rb") as own:
        made = _unshare(_CLONE_NEWPID)
        try:
            yield made
        finally:
            if made:
                _libc.setns(own.fileno(), _CLONE_NEWPID)


def _tasks_of_user(user: int) -> int:
    """Processes and threads that the user has now, since RLIMIT_NPROC counts them all."""
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == user:
                    count += len(list((entry / "task").iterdir()))
    return count


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (ceiling, ceiling))


def _set_limits(containment: Containment) -> None:
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _limit(resource.RLIMIT_AS, mapped + containment.memory_bytes)
    _limit(resource.RLIMIT_FSIZE, containment.file_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, containment.cpu_seconds)
    # Root is exempt from RLIMIT_NPROC, so it becomes another user; anyone else shares the count with what already runs.
    others = 0 if os.geteuid() == 0 else _tasks_of_user(os.geteuid())
    _limit(resource.RLIMIT_NPROC, others + containment.processes)


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _drop_to_user(user: int) -> None:
    """Gives up root for `user`, keeping only the right to read files (Python may live in root's home), which
    compilers that it starts inherit."""
    _libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    mask = 1 << _CAP_DAC_READ_SEARCH
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    data = (_CapabilityData * 2)(_CapabilityData(mask, mask, mask), _CapabilityData(0, 0, 0))
    _libc.capset(ctypes.byref(header), data)
    _libc.prctl(_PR_CAP_AMBIENT, 2, _CAP_DAC_READ_SEARCH, 0, 0)


def contain_self(containment: Containment, keep: set[int], pid_namespace: bool) -> list[str]:
    """Contains the calling process, which must be freshly forked. `keep` holds the file descriptors to leave open.

    Returns the names of what is active, for the verdict.
    """
    active = ["session", "rlimits"] + (["pid_namespace"] if pid_namespace else [])
    with contextlib.suppress(PermissionError):
        os.setsid()
    _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    if containment.cores:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, containment.cores)
    for name, flag in (("network_namespace", _CLONE_NEWNET), ("ipc_namespace", _CLONE_NEWIPC)):
        if _unshare(flag):
            active.append(name)
    os.chdir(containment.folder)
    _redirect(Path(containment.folder) / "output.txt", keep)
    _set_limits(containment)
    if os.geteuid() == 0:
        try:
            _drop_to_user(containment.user)
            active.append("own_user")
        except OSError:
            active.append("root")
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        active.append("no_new_privileges")
    return active


def _redirect(output: Path, keep: set[int]) -> None:
    """Sends what is printed to a file of bounded size, and closes every inherited descriptor but those to keep."""
    with open(os.devnull, "rb") as nothing, open(output, "wb") as sink:
        os.dup2(nothing.fileno(), 0)
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))
