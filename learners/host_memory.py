"""Gives memory back to the system that the C library keeps for later, on a CPU.

Tensors of ever other sizes leave holes between each other, which glibc does not give back by itself: a learner of half
a billion weights came to hold twice what a step takes, beside an engine that lacked it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def trim() -> None:
    """Takes some milliseconds, and what is used next has to be mapped again. Does nothing where there is no glibc."""
    if (call := _malloc_trim()) is not None:
        call(0)


@cache
def _malloc_trim() -> Any:
    try:
        return ctypes.CDLL("libc.so.6").malloc_trim
    except (OSError, AttributeError):
        return None
