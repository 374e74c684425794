"""Landlock: a process gives up writing anywhere but where it may, and reaching others, with no privilege and no mount.

Stands behind the namespaces and the read-only view of the host's files where there are any, and in their place where
the host allows nobody that. Nobody in a domain of Landlock's looks into a process outside of it, either, as by
/proc/PID/mem. Rights and structures are those of <linux/landlock.h>.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
# Write, remove, and make every kind of file; two more rights by version of the interface.
_CHANGING = (1 << 1) | sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14
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
    """Lets the calling process, and all that it will start, change files in these folders (or these files) alone, look
    into no other process and, where the kernel is new enough, signal none. It must not be able to gain privileges.
    Returns the names of what the host allowed: `landlock`, and `scoped` for the signals."""
    version = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        return []
    handled = _CHANGING | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    about = _Ruleset(handled, _BIND_AND_CONNECT if version >= 4 else 0)
    about.scoped = _ABSTRACT_SOCKETS_AND_SIGNALS if version >= 6 else 0
    ruleset = _libc.syscall(_CREATE_RULESET, ctypes.byref(about), ctypes.c_size_t(ctypes.sizeof(about)), 0)
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
        return ["landlock", "scoped"] if about.scoped else ["landlock"]
    finally:
        os.close(ruleset)
