"""The memory of this process's CPU tensors, which the judge reads while the process is stopped.

Runs in the candidate's process (untrusted). It only says where the outputs lie; what lies there is the judge's to read.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

import torch
from torch import Tensor

from evaluators.runner import native
from evaluators.shared.nesting import is_lazy, without_repeats

_ADDRESS, _COPY = Tensor.data_ptr, Tensor.copy_


class Arena:
    """The process's CPU tensors lie in the memory of one descriptor from now on, as far as they fit."""

    def __init__(self, descriptor: int, size: int) -> None:
        """Maps the memory and closes the descriptor. Raises OSError if it cannot be mapped."""
        library = ctypes.CDLL(native.path())
        library.warpsmith_open_arena.restype = ctypes.c_size_t
        self._base = library.warpsmith_open_arena(ctypes.c_int(descriptor), ctypes.c_size_t(size))
        os.close(descriptor)
        if not self._base:
            raise OSError("the judge's memory cannot be mapped")
        self._size = size
        self._kept: list[Tensor] = []

    def forget(self) -> None:
        """Frees the outputs of the last burst."""
        self._kept = []

    def places(self, tensors: Sequence[Tensor]) -> list[int]:
        """Where an output lies, in bytes from the beginning of the memory, one number a tensor. It stays there until
        `forget`. What lies elsewhere, such as in an input, is copied."""
        kept = [tensor if self._holds(tensor) and not is_lazy(tensor) else _copied(tensor) for tensor in tensors]
        self._kept += kept
        return [_ADDRESS(tensor) - self._base if tensor.numel() else 0 for tensor in kept]

    def _holds(self, tensor: Tensor) -> bool:
        return self._base <= _ADDRESS(tensor) < self._base + self._size


def _copied(tensor: Tensor) -> Tensor:
    """A copy with the same strides in memory of its own."""
    with torch._C.DisableTorchFunctionSubclass():
        copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        _COPY(*without_repeats(copy, tensor))
        return copy
