"""Contains a runner: resource limits, a user of its own, namespaces of its own, nothing inherited.

Runs before the program (still trusted): in a freshly forked child, before any line of a candidate. A step that the host
refuses is left out, and is missing from the returned list, which the verdict records. Nothing here may raise for lack
of privilege.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import resource
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluators.sandbox.landlock import restrict_self
from evaluators.sandbox.seccomp import refuse_system_calls

_libc = ctypes.CDLL(None, use_errno=True)

# <linux/sched.h>, <linux/prctl.h>, <linux/capability.h>
_CLONE_FS, _CLONE_NEWNS, _CLONE_NEWIPC = 0x00000200, 0x00020000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 4, 8, 38, 47
_CAP_DAC_READ_SEARCH = 2
# <sys/mount.h>, <linux/mount.h>
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x40000
_SYS_MOUNT_SETATTR, _MOUNT_ATTR_RDONLY, _AT_RECURSIVE, _AT_FDCWD = 442, 1, 0x8000, -100
_CAPABILITY_VERSION_3 = 0x20080522
_MPS = Path("/tmp/nvidia-mps/control")  # there if the machine runs NVIDIA's multi-process service for all processes


@dataclass(frozen=True)
class Containment:
    """Limits of one runner, in bytes, counts and seconds.

    `folder_bytes`, `folder_files`: what its own folder may hold if that is in memory.
    `user`: the uid that it gets if we are root. `cores`: those on which it may run. If the host lets us mount, the
    runner may write only in `folder` and in the `writable` folders, and sees what is `hidden`, folders or files of
    devices, as empty. Folders below `lendable` can be made writable later (`lend_folders`).
    `maps_device`: it maps device memory. CUDA reserves terabytes of address space, so the limit of memory is then on
    what the process can write to, not on its address space.
    """

    memory_bytes: int
    processes: int
    file_bytes: int
    cpu_seconds: int
    user: int
    folder: str
    folder_bytes: int = 256 << 20
    folder_files: int = 8000
    cores: Sequence[int] = ()
    hidden: Sequence[str] = ()
    writable: Sequence[str] = ()
    lendable: str = ""
    maps_device: bool = False


def _unshare(flags: int) -> bool:
    return _libc.unshare(flags) == 0


def enter_user_namespace() -> bool:
    """Gives an unprivileged process the right to make namespaces. Returns whether it has it: always if it is root, else
    if the host allows it."""
    if os.geteuid() == 0:
        return True
    user, group = os.geteuid(), os.getegid()
    if not _unshare(_CLONE_NEWUSER):
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def new_pid_namespace() -> bool:
    """Makes the next forked child process 1 of a new PID namespace. Returns whether the host allowed it."""
    return _unshare(_CLONE_NEWPID)


def _tasks_of_user(user: int) -> int:
    """The number of processes and threads of the user, all of which RLIMIT_NPROC counts."""
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
    pages = Path("/proc/self/statm").read_text().split()
    kind, used = (
        (resource.RLIMIT_DATA, int(pages[5])) if containment.maps_device else (resource.RLIMIT_AS, int(pages[0]))
    )
    _limit(kind, used * os.sysconf("SC_PAGE_SIZE") + containment.memory_bytes)
    _limit(resource.RLIMIT_FSIZE, containment.file_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, containment.cpu_seconds)
    # Root is exempt from RLIMIT_NPROC, so a runner of root becomes another user. Any other user shares the count with
    # all that it runs already.
    others = 0 if os.geteuid() == 0 else _tasks_of_user(os.geteuid())
    _limit(resource.RLIMIT_NPROC, others + containment.processes)


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def hide_memory(hidden: bool = True) -> None:
    """Keeps processes of the same user out of this one's memory and descriptors, or lets them in again."""
    _libc.prctl(_PR_SET_DUMPABLE, 0 if hidden else 1, 0, 0, 0)


def _set_capabilities(mask: int) -> None:
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    data = (_CapabilityData * 2)(_CapabilityData(mask, mask, mask), _CapabilityData(0, 0, 0))
    _libc.capset(ctypes.byref(header), data)


def _is_private(places: Iterable[str]) -> bool:
    """Whether one of the places lies in a folder that other users may not enter, such as Python in root's home."""
    existing = [Path(place).resolve() for place in places if place and Path(place).exists()]
    return any(not above.stat().st_mode & 0o001 for place in existing for above in place.parents)


def _drop_to_user(user: int, needed: Iterable[str]) -> None:
    """Gives up root for `user`. If a `needed` place is private, the process keeps the right to read all files, which
    compilers that it starts inherit."""
    private = _is_private(needed)
    _libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    _set_capabilities(1 << _CAP_DAC_READ_SEARCH if private else 0)
    if private:
        _libc.prctl(_PR_CAP_AMBIENT, 2, _CAP_DAC_READ_SEARCH, 0, 0)


def contain_self(containment: Containment, keep: set[int], pid_namespace: bool) -> list[str]:
    """Contains the calling process, which must be freshly forked. `keep`: the file descriptors to leave open.
    `pid_namespace`: whether the process is in a PID namespace of its own.

    Returns the names of the containment that is active, for the verdict.
    """
    active = ["session", "rlimits"] + (["pid_namespace"] if pid_namespace else [])
    hide_memory(False)  # the zygote's memory is hidden; inherited, this makes /proc/self unwritable
    with contextlib.suppress(PermissionError):
        os.setsid()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    if containment.cores:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, containment.cores)
    for name, flag in (("network_namespace", _CLONE_NEWNET), ("ipc_namespace", _CLONE_NEWIPC)):
        if _unshare(flag):
            active.append(name)
    _redirect(Path(containment.folder) / "output.txt", keep)
    if _restrict_mounts(containment, pid_namespace):
        active.append("read_only_host")
    os.chdir(containment.folder)
    _set_limits(containment)
    if os.geteuid() == 0:
        try:
            _drop_to_user(containment.user, (sys.executable, *sys.path, containment.folder, *_open_to(containment)))
            active.append("own_user")
        except OSError:
            active.append("root")
    else:
        _set_capabilities(0)  # drops those of the user namespace that the zygote made
    hide_memory()
    _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)  # after the change of user, which clears it
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        active.append("no_new_privileges")
        # CUDA writes to devices, and to files of its process in /proc.
        own_memory, own_processes = "read_only_host" in active, {"read_only_host", "pid_namespace"} <= set(active)
        places = [containment.folder, *containment.writable, *_devices(own_memory or containment.maps_device)]
        if own_memory and containment.lendable:  # what is lent is a mount, and all beside it is read-only
            places.append(containment.lendable)
        active += restrict_self([*places, "/proc" if own_processes else "/proc/self"])
        if refuse_system_calls(gpu=containment.maps_device, mps=containment.maps_device and _MPS.exists()):
            active.append("seccomp")
    return active


def _open_to(containment: Containment) -> list[str]:
    """The places to which the runner needs its way: the writable folders, and one of those that can be lent."""
    places = list(containment.writable)
    if containment.lendable:
        with contextlib.suppress(OSError), os.scandir(containment.lendable) as entries:
            places += [entry.path for entry in itertools.islice(entries, 1)]
    return places


def lend_folders(process: int, folders: Sequence[str]) -> bool:
    """Makes folders below the `lendable` one writable for a contained process, which runs no program yet: by mounts in
    its own view of the host's files. Returns whether that could be done. The caller must be allowed to look into the
    process, and to mount."""
    lent: list[str] = []

    def lend() -> None:
        """In a thread of its own, which ends in the process's view of files; the others keep theirs."""
        with contextlib.suppress(OSError), open(f"/proc/{process}/ns/mnt", "rb") as view:
            if _unshare(_CLONE_FS) and _libc.setns(view.fileno(), _CLONE_NEWNS) == 0:
                lent.extend(filter(_bind_writable, folders))

    thread = threading.Thread(target=lend)
    thread.start()
    thread.join()
    return lent == list(folders)


def _bind_writable(place: str) -> bool:
    return _mount(place, place, "none", _MS_BIND) and _set_read_only(place, False, recursive=False)


def _devices(own_memory: bool) -> list[str]:
    """Paths in /dev to which a program may write: no disks; and no shared memory unless it is its own, since files
    would stay there."""
    shared = set() if own_memory else {"shm", "mqueue", "hugepages"}
    with os.scandir("/dev") as entries:
        return [entry.path for entry in entries if entry.name not in shared and not Path(entry.path).is_block_device()]


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns_fd"))


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> bool:
    return _libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()) == 0


def _set_read_only(place: str, read_only: bool, *, recursive: bool) -> bool:
    """Returns whether the mount could be changed: not on kernels without mount_setattr (before 5.12), nor without
    the right to do it."""
    attributes = _MountAttributes(*((_MOUNT_ATTR_RDONLY, 0) if read_only else (0, _MOUNT_ATTR_RDONLY)), 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    arguments = (ctypes.c_int(_AT_FDCWD), place.encode(), ctypes.c_uint(flags), ctypes.byref(attributes), size)
    return _libc.syscall(ctypes.c_long(_SYS_MOUNT_SETATTR), *arguments) == 0


def _restrict_mounts(containment: Containment, pid_namespace: bool) -> bool:
    """Gives the process its own view of the host's files, and returns whether it could. All files are read-only, except
    in its own folder (in memory of bounded size, gone with the process) and in the `writable` folders. /proc shows no
    processes but those of its own namespace."""
    if not _unshare(_CLONE_NEWNS) or not _mount("none", "/", "none", _MS_REC | _MS_PRIVATE):
        return False
    user, group = (containment.user,) * 2 if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    room = f"size={containment.folder_bytes},nr_inodes={containment.folder_files}"
    options = f"{room},mode=0700,uid={user},gid={group}"
    memory = [containment.folder, "/dev/shm"]
    made = [_mount("tmpfs", place, "tmpfs", _MS_NOSUID | _MS_NODEV, options) for place in memory]
    made += [_mount(place, place, "none", _MS_BIND) for place in containment.writable]
    if not all(made) or not _set_read_only("/", True, recursive=True):
        return False
    for place in (*memory, *containment.writable):
        _set_read_only(place, False, recursive=False)
    for place in containment.hidden:
        if os.path.isdir(place):
            _mount("tmpfs", place, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=4k,mode=0755")
        else:
            _mount(os.devnull, place, "none", _MS_BIND)
    if pid_namespace:
        _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    return True


def _redirect(output: Path, keep: set[int]) -> None:
    """Redirects standard output and error to the file `output`, and closes every inherited descriptor but those to
    keep."""
    with open(os.devnull, "rb") as nothing, open(output, "wb") as sink:
        os.dup2(nothing.fileno(), 0)
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))
