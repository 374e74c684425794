"""A system-call filter: what no program needs, and what would let one out of its cores, processes or files, is refused.

A list of what is refused rather than of what is allowed: CUDA, compilers and Python use hundreds of calls, and differ
from version to version. Numbers and the filter's form are those of <linux/seccomp.h>, <linux/filter.h> and
<linux/audit.h>.
"""

from __future__ import annotations

import ctypes
import platform
import struct

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_ALLOW, _ERRNO_EPERM = 0x7FFF0000, 0x00050001
_LOAD_WORD, _RETURN = 0x20, 0x06  # BPF_LD | BPF_W | BPF_ABS, BPF_RET
_JUMP_EQUAL, _JUMP_FROM = 0x15, 0x35  # BPF_JMP | BPF_JEQ | BPF_K, BPF_JMP | BPF_JGE | BPF_K
_X32 = 0x40000000  # the same calls by other numbers, where an x86-64 kernel has that interface
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4  # offsets in struct seccomp_data

# By name, the numbers on x86-64 and on 64-bit Arm.
_REFUSED = {
    "sched_setaffinity": (203, 122),  # other cores than those of the slot
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "move_mount": (429, 429),
    "mount_setattr": (442, 442),
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
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "timer_create": (222, 107),  # its signal may continue a process that the judge has stopped
    "mq_notify": (244, 184),  # so may this one's
}
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def filter_program(machine: str) -> bytes | None:
    """The filter in classic BPF, or None for a machine whose numbers are not known here."""
    if machine not in _ARCHITECTURES:
        return None
    architecture, column = _ARCHITECTURES[machine]
    numbers = sorted(numbers[column] for numbers in _REFUSED.values())
    lines = [
        (_LOAD_WORD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _ERRNO_EPERM),  # a call by another architecture's numbers
        (_LOAD_WORD, 0, 0, _NUMBER_AT),
        (_JUMP_FROM, len(numbers) + 1, 0, _X32),
        *((_JUMP_EQUAL, len(numbers) - index, 0, number) for index, number in enumerate(numbers)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO_EPERM),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def refuse_system_calls() -> bool:
    """Puts the calling process, and all that it will start, under the filter. It must not be able to gain privileges
    (PR_SET_NO_NEW_PRIVS). Returns whether the host allowed it."""
    program = filter_program(platform.machine())
    if program is None:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    described = _Program(len(program) // 8, program)
    return libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(described), 0, 0) == 0
