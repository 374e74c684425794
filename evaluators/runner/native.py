"""The C++ that a runner runs of ours (`evaluators.host.native` compiles it).

Runs in the candidate's process (untrusted).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

_VARIABLE = "WARPSMITH_NATIVE"
_SERVE_BURSTS = "warpsmith_serve_bursts"


def path() -> str:
    """The compiled library. Raises KeyError if this process has been given none."""
    return os.environ[_VARIABLE]


def preload() -> None:
    """Loads the library, if this process has been given one, so that forked processes need not open it."""
    if _VARIABLE in os.environ:
        ctypes.CDLL(path())


def burst_server() -> Callable[..., Any]:
    """The function that serves bursts (`evaluators/shared/bursts.cpp`)."""
    function = ctypes.PyDLL(path())[_SERVE_BURSTS]
    function.argtypes = [ctypes.c_int, *[ctypes.py_object] * 6]
    function.restype = ctypes.py_object
    return function
