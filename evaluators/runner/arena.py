"""The memory of this process's CPU tensors, which the judge reads while the process is stopped.

Runs in the candidate's process (untrusted). It only says where the outputs lie; what lies there is the judge's to read.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

import torch
from torch import Tensor

LIBRARY = "WARPSMITH_ARENA"
_ADDRESS, _COPY = Tensor.data_ptr, Tensor.copy_


def preload() -> None:
    """Loads the allocator's library, if this process has been given one, so that forked processes need not open it."""
    if path := os.environ.get(LIBRARY):
        ctypes.CDLL(path)


class Arena:
    """The process's CPU tensors lie in the memory of one descriptor from now on, as far as they fit."""

    def __init__(self, descriptor: int, size: int) -> None:
        """Maps the memory and closes the descriptor. Raises OSError if it cannot be mapped."""
        library = ctypes.CDLL(os.environ[LIBRARY])
        library.warpsmith_open_arena.restype = ctypes.c_size_t
        self._base = library.warpsmith_open_arena(ctypes.c_int(descriptor), ctypes.c_size_t(size))
        os.close(descriptor)
        if not self._base:
            raise OSError("the judge's memory cannot be mapped")
        self._size = size
        self._kept: list[Tensor] = []
        self._places: list[list[int]] = []

    def forget(self) -> None:
        """Frees the outputs of the last request."""
        self._kept, self._places = [], []

    def keep(self, tensors: Sequence[Tensor]) -> None:
        """Keeps the output of one call until the next request. What lies elsewhere, such as in an input, is copied."""
        kept = [tensor if self._holds(tensor) else _copied(tensor) for tensor in tensors]
        self._kept += kept
        self._places.append([_ADDRESS(tensor) - self._base if tensor.numel() else 0 for tensor in kept])

    def places(self) -> list[list[int]]:
        """Where the outputs of each call lie: bytes from the beginning of the memory, one number a tensor."""
        return self._places

    def _holds(self, tensor: Tensor) -> bool:
        return self._base <= _ADDRESS(tensor) < self._base + self._size


def _copied(tensor: Tensor) -> Tensor:
    """A copy with the same strides in memory of its own."""
    with torch._C.DisableTorchFunctionSubclass():
        copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        if not any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
            return _COPY(copy, tensor)
        from evaluators.shared.nesting import without_repeats

        _COPY(*without_repeats(copy, tensor))
        return copy
