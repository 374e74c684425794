"""Landlock: a process gives up writing outside of its own places, and reaching other processes. It needs neither
privileges nor mounts.

Runs before the program (still trusted). It is a second line behind the namespaces and the read-only view of the host's
files, and the only one on a host that allows neither. A process under Landlock cannot look into a process outside
either, as by /proc/PID/mem. Rights and structures are those of <linux/landlock.h>.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
# To write, remove and make every kind of file; later versions of the interface have two more rights.
_CHANGING = (1 << 1) | sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_CONNECT_BY_PATH = 1 << 16  # to a socket in a folder that a process outside has made; no place is exempt
_FOR_FILES = (1 << 1) | _TRUNCATE
_BIND_AND_CONNECT = 0b11  # by TCP
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11  # of processes outside

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("handled_access_fs", "handled_access_net", "scoped"))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def restrict_self(places: Iterable[str]) -> list[str]:
    """From now on the calling process, and all that it starts, can change files only in `places` (folders, or single
    files) and cannot look into processes outside; if the kernel is new enough, it cannot signal them either. The
    process must not be able to gain privileges (PR_SET_NO_NEW_PRIVS).

    Returns the names of the containment that the host allowed: `landlock`, and `scoped` for the signals."""
    version = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        return []
    handled = _CHANGING | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    refused = _CONNECT_BY_PATH if version >= 9 else 0
    wanted = _Ruleset(handled | refused, _BIND_AND_CONNECT if version >= 4 else 0)
    wanted.scoped = _ABSTRACT_SOCKETS_AND_SIGNALS if version >= 6 else 0
    ruleset = _libc.syscall(_CREATE_RULESET, ctypes.byref(wanted), ctypes.c_size_t(ctypes.sizeof(wanted)), 0)
    if ruleset < 0:
        return []
    try:
        for place in places:
            with suppress(OSError):
                descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
                rights = handled if os.path.isdir(place) else handled & _FOR_FILES
                rule = _PathBeneath(rights, descriptor)
                _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
                os.close(descriptor)
        if _libc.syscall(_RESTRICT_SELF, ruleset, 0) != 0:
            return []
        return ["landlock", "scoped"] if wanted.scoped else ["landlock"]
    finally:
        os.close(ruleset)
