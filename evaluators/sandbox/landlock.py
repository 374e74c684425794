"""Landlock: a process gives up writing anywhere but where it may, with no privilege and no mount.

Stands behind the read-only view of the host's files where there is one, and in its place where the host lets nobody
mount. Rights and structures are those of <linux/landlock.h>.
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

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def restrict_writing(places: Iterable[str]) -> bool:
    """Lets the calling process, and all that it will start, change files in these folders (or these files) alone. It
    must not be able to gain privileges. Returns whether the host allowed it."""
    version = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        return False
    handled = _CHANGING | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    about = _Ruleset(handled)
    ruleset = _libc.syscall(_CREATE_RULESET, ctypes.byref(about), ctypes.c_size_t(ctypes.sizeof(about)), 0)
    if ruleset < 0:
        return False
    try:
        for place in places:
            with suppress(OSError):
                descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
                rights = handled if os.path.isdir(place) else handled & _FOR_FILES
                rule = _PathBeneath(rights, descriptor)
                _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
                os.close(descriptor)
        return bool(_libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)
