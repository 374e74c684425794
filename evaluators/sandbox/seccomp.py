"""A system-call filter. It refuses calls that no program needs, and calls that would let one out of its cores, its
processes or its files.

Runs before the program (still trusted). The filter lists refused calls, not allowed ones: CUDA, compilers and Python
use hundreds of calls, and differ from version to version. Numbers and the filter's form are those of
<linux/seccomp.h>, <linux/filter.h> and <linux/audit.h>.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import signal
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_REFUSE = _ERRNO | errno.EPERM
_LOAD_WORD, _AND, _RETURN = 0x20, 0x54, 0x06  # BPF_LD | BPF_W | BPF_ABS, BPF_ALU | BPF_AND | BPF_K, BPF_RET
_JUMP_EQUAL, _JUMP_FROM = 0x15, 0x35  # BPF_JMP | BPF_K, and BPF_JEQ, BPF_JGE
_X32 = 0x40000000  # the same calls by other numbers, if an x86-64 kernel has that interface
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # offsets in struct seccomp_data

# Numbers on x86-64 and on 64-bit Arm, by name.
_REFUSED = {
    "sched_setaffinity": (203, 122),  # to run on other cores than those of the slot
    "setpriority": (141, 140),  # its own, and that of any process of the same user
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "move_mount": (429, 429),
    "mount_setattr": (442, 442),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "open_by_handle_at": (304, 265),  # a process that may read every file would get at hidden ones
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    # What these set up goes on in interrupts while the program is stopped, in the time of whoever has the core then.
    "io_setup": (206, 0),
    "timerfd_create": (283, 85),
    "epoll_create": (213, 20),
    "epoll_create1": (291, 20),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "timer_create": (222, 107),  # its signal may continue a process that the judge has stopped
    "mq_notify": (244, 184),  # so may the signal of this one
    "mq_open": (240, 180),  # a queue outlives its process
    "shmget": (29, 194),  # so do these three
    "semget": (64, 190),
    "msgget": (68, 186),
    "bind": (49, 200),  # a program reaches nobody, and nobody reaches it
    "listen": (50, 201),
    "connect": (42, 203),
}
# CUDA makes a socket of its own in each process, and does not start without it. Only a client of NVIDIA's multi-process
# service also connects. Neither reaches a network: there are no sockets but those of AF_UNIX.
# Whether CUDA does without the calls that work in interrupts has not been tried.
_OF_CUDA = {"bind", "listen", "io_setup", "timerfd_create", "epoll_create", "epoll_create1"}
_OF_MPS = {"connect", "shmget"}
# No process leaves the process group of its runner, through which all are stopped and killed at once. These calls do
# nothing and report success, for libraries that give a session of their own to processes that they start.
_PRETENDED = {"setsid": (112, 157), "setpgid": (109, 154)}
_ABSENT = {"clone3": (435, 435)}  # its flags lie where the filter cannot read; the C library then uses clone
_CLONE_NAMESPACES, _CLONE_PARENT, _CLONE_SIGNAL = 0x7E020000, 0x8000, 0xFF
_F_SETSIG, _TIOCSPTLCK, _PR_SET_PDEATHSIG = 10, 0x40045431, 1


class _Argument(NamedTuple):
    """A condition on the lower half of the argument at `place`: that its bits in `mask` are one of the `values`, if
    `is_one`, or none of them."""

    place: int
    values: tuple[int, ...]
    is_one: bool = False
    mask: int = 0xFFFFFFFF


_DATAGRAMS = _Argument(1, (int(socket.SOCK_DGRAM),), True, mask=0xF)
# No process of a group may continue what the judge has stopped. A process that sends itself SIGCONT without a pause
# cannot be stopped at all. The kernel sends SIGCONT even on behalf of processes that are stopped, or that have ended
# except for their memory.
_SIGCONT = int(signal.SIGCONT)
# Calls that are refused for some arguments: for each way listed, if all its conditions hold.
_REFUSED_IF: dict[str, tuple[tuple[int, int], tuple[tuple[_Argument, ...], ...]]] = {
    "clone": (
        (56, 220),
        (
            (_Argument(0, (0,), mask=_CLONE_NAMESPACES | _CLONE_PARENT),),
            (
                _Argument(0, (0, int(signal.SIGCHLD)), mask=_CLONE_SIGNAL),
            ),  # the signal that the parent gets when its child ends
        ),
    ),
    # A socket for datagrams would reach others without a connection.
    "socket": ((41, 198), ((_Argument(0, (int(socket.AF_UNIX),)),), (_DATAGRAMS,))),
    "socketpair": ((53, 199), ((_DATAGRAMS,),)),
    "prlimit64": ((302, 261), ((_Argument(0, (0,)),),)),  # limits of another process
    "move_pages": ((279, 239), ((_Argument(0, (0,)),),)),
    "migrate_pages": ((256, 238), ((_Argument(0, (0,)),),)),
    "kill": ((62, 129), ((_Argument(1, (_SIGCONT,), True),),)),
    "tkill": ((200, 130), ((_Argument(1, (_SIGCONT,), True),),)),
    "tgkill": ((234, 131), ((_Argument(2, (_SIGCONT,), True),),)),
    "rt_sigqueueinfo": ((129, 138), ((_Argument(1, (_SIGCONT,), True),),)),
    "rt_tgsigqueueinfo": ((297, 240), ((_Argument(2, (_SIGCONT,), True),),)),
    "pidfd_send_signal": ((424, 424), ((_Argument(1, (_SIGCONT,), True),),)),
    "fcntl": ((72, 25), ((_Argument(1, (_F_SETSIG,), True),),)),
    # The signal to get when the parent ends; torch.multiprocessing asks for SIGINT.
    "prctl": ((157, 167), ((_Argument(0, (_PR_SET_PDEATHSIG,), True), _Argument(1, (_SIGCONT,), True)),)),
    # Waits for all cores of the machine, uninterruptibly: a process that waits so does not end when it is killed.
    "membarrier": ((324, 283), ((_Argument(0, (1, 2, 4), True),),)),  # for the program's own threads alone it may wait
    # Without it no process opens the other end of a terminal. A terminal's session is sent SIGCONT when the terminal is
    # hung up.
    "ioctl": ((16, 29), ((_Argument(1, (_TIOCSPTLCK,), True),),)),
}
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

_Line = tuple[int, int, int, int]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _answered(numbers: Iterable[int], verdict: int) -> list[_Line]:
    """Lines of the filter that give these calls a verdict."""
    listed = sorted(numbers)
    compared = [(_JUMP_EQUAL, len(listed) - 1 - index, 0, number) for index, number in enumerate(listed[:-1])]
    return [*compared, (_JUMP_EQUAL, 0, 1, listed[-1]), (_RETURN, 0, 0, verdict)]


def _refused_if(number: int, arguments: Sequence[_Argument]) -> list[_Line]:
    """Lines of the filter that refuse a call if all conditions hold for its arguments, and else load its number again
    for the lines that follow."""
    lines: list[_Line] = [(_RETURN, 0, 0, _REFUSE)]
    for place, values, is_one, mask in reversed(arguments):
        compared = []
        for left in reversed(range(len(values))):  # how many comparisons still follow
            equal = left if is_one else left + len(lines)
            other = 0 if left or not is_one else len(lines)
            compared.append((_JUMP_EQUAL, equal, other, values[len(values) - 1 - left]))
        lines = [(_LOAD_WORD, 0, 0, _ARGUMENTS_AT + 8 * place), (_AND, 0, 0, mask), *compared, *lines]
    return [(_JUMP_EQUAL, 0, len(lines) + 1, number), *lines, (_LOAD_WORD, 0, 0, _NUMBER_AT)]


def filter_program(machine: str, *, gpu: bool = False, mps: bool = False) -> bytes | None:
    """The filter in classic BPF, or None for a machine whose numbers are not listed here. `gpu`: the calls that CUDA
    needs are allowed; `mps`: also those of a client of the multi-process service."""
    if machine not in _ARCHITECTURES:
        return None
    architecture, column = _ARCHITECTURES[machine]
    lines: list[_Line] = [
        (_LOAD_WORD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _REFUSE),  # a call by the numbers of another architecture
        (_LOAD_WORD, 0, 0, _NUMBER_AT),
        (_JUMP_FROM, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE),
    ]
    spared = (_OF_CUDA if gpu else set()) | (_OF_MPS if mps else set())
    for refused, ways in _REFUSED_IF.values():
        for arguments in ways:
            lines += _refused_if(refused[column], arguments)
    plain = {name: numbers for name, numbers in _REFUSED.items() if name not in spared}
    for table, verdict in ((_PRETENDED, _ERRNO), (_ABSENT, _ERRNO | errno.ENOSYS), (plain, _REFUSE)):
        lines += _answered((numbers[column] for numbers in table.values()), verdict)
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def refuse_system_calls(*, gpu: bool = False, mps: bool = False) -> bool:
    """Puts the calling process, and all that it starts, under the filter (`filter_program`), and returns whether the
    host allowed it. The process must not be able to gain privileges (PR_SET_NO_NEW_PRIVS)."""
    program = filter_program(platform.machine(), gpu=gpu, mps=mps)
    if program is None:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    described = _Program(len(program) // 8, program)
    return libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(described), 0, 0) == 0
