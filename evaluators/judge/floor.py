"""Measures how many bytes a call must write, whatever it computes: the part of its output that is new at each call and
stands nowhere else yet.

Only writing counts. No task can tell what has to be read or computed, since algebra may make it unnecessary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from evaluators.shared import nesting

_SAMPLES = 16
_AT_ONCE = 1 << 24  # numbers of an input that are compared with the samples at once
_MOST_BY_CHANCE = 0.25  # share of the samples that may be among the inputs by chance
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bytes_written(first: Sequence[Tensor], second: Sequence[Tensor], inputs: list[Any]) -> int:
    """Bytes that a call on `inputs` must have written to return `second`, if a call on other inputs returned `first`.

    Only the largest output counts, since others may be views of it. Places that did not change may be left from before.
    Zeros may be memory that nobody has touched. An output that holds an input's numbers may be a view of it.
    """
    _, given = nesting.flatten(inputs)
    return max((_bytes_of_one(before, after, given) for before, after in zip(first, second, strict=True)), default=0)


def _bytes_of_one(before: Tensor, after: Tensor, inputs: Sequence[Tensor]) -> int:
    if before.is_complex() or before.dtype.itemsize not in _INTEGERS or any(step == 0 for step in after.stride()):
        return 0
    is_new = (before != after) & (after != 0)
    count = int(is_new.sum())
    if not count or _are_of_inputs(after[is_new], inputs):
        return 0
    # Places that share memory are written once.
    extent = 1 + sum((size - 1) * step for size, step in zip(after.shape, after.stride(), strict=True))
    return min(count, extent) * after.dtype.itemsize


def _are_of_inputs(values: Tensor, inputs: Sequence[Tensor]) -> bool:
    """Whether samples of the values are numbers of the inputs, whatever their sign."""
    step = max(1, len(values) // _SAMPLES)
    samples = _magnitudes(values[::step][:_SAMPLES])
    is_found = torch.zeros_like(samples, dtype=torch.bool)
    for tensor in inputs:
        if tensor.dtype.itemsize == values.dtype.itemsize:
            for part in tensor.reshape(-1).split(_AT_ONCE):
                numbers = _magnitudes(part)
                is_found |= torch.isin(samples, numbers[torch.isin(numbers, samples)])
    return int(is_found.sum()) > _MOST_BY_CHANCE * len(samples)


def _magnitudes(values: Tensor) -> Tensor:
    """The bits of the numbers without their signs."""
    kind = _INTEGERS[values.dtype.itemsize]
    return values.contiguous().reshape(-1).view(kind) & torch.iinfo(kind).max
