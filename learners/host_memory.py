"""Returns memory to the system that the C library keeps for later use, on a CPU.

Tensors of changing sizes leave gaps between each other, which glibc does not return by itself. A learner of half a
billion weights came to hold twice the memory of a step, while an engine on the same host lacked it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def trim() -> None:
    """Returns the free memory. This takes some milliseconds, and memory that is used next has to be mapped again. Does
    nothing without glibc."""
    if (call := _malloc_trim()) is not None:
        call(0)


@cache
def _malloc_trim() -> Any:
    try:
        return ctypes.CDLL("libc.so.6").malloc_trim
    except (OSError, AttributeError):
        return None
