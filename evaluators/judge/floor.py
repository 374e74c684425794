"""How much a call must write whatever it computes: what of its output is new at each call, and nowhere else already.

Only what is written counts. What must be read, or computed, no task can tell: algebra may do without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from evaluators.shared import nesting

_SAMPLES = 16
_AT_ONCE = 1 << 24  # of an input's numbers, each of which is compared with each sample
_MOST_KNOWN = 0.25  # of the samples may be among the inputs by chance
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bytes_written(first: Sequence[Tensor], second: Sequence[Tensor], inputs: list[Any]) -> int:
    """Bytes that a call on `inputs` must have written to return `second`, where another on others returned `first`.

    Of the largest output alone, as others may be views of it. Places that did not change may have stood there before,
    zeros may be memory that nobody has touched, and an output that holds an input's numbers may be a view of it.
    """
    _, given = nesting.flatten(inputs)
    return max((_written(one, other, given) for one, other in zip(first, second, strict=True)), default=0)


def _written(one: Tensor, other: Tensor, inputs: Sequence[Tensor]) -> int:
    if one.is_complex() or one.dtype.itemsize not in _INTEGERS or any(step == 0 for step in other.stride()):
        return 0
    new = (one != other) & (other != 0)
    count = int(new.sum())
    if not count or _is_known(other[new], inputs):
        return 0
    # Places that share memory are written once.
    extent = 1 + sum((size - 1) * step for size, step in zip(other.shape, other.stride(), strict=True))
    return min(count, extent) * other.dtype.itemsize


def _is_known(values: Tensor, inputs: Sequence[Tensor]) -> bool:
    """Whether samples of the values are numbers of the inputs, whatever their sign."""
    step = max(1, len(values) // _SAMPLES)
    samples = _magnitudes(values[::step][:_SAMPLES])
    found = torch.zeros_like(samples, dtype=torch.bool)
    for one in inputs:
        if one.dtype.itemsize == values.dtype.itemsize:
            for some in one.reshape(-1).split(_AT_ONCE):
                known = _magnitudes(some)
                found |= torch.isin(samples, known[torch.isin(known, samples)])
    return int(found.sum()) > _MOST_KNOWN * len(samples)


def _magnitudes(values: Tensor) -> Tensor:
    """The bits of the numbers but for their signs."""
    kind = _INTEGERS[values.dtype.itemsize]
    return values.contiguous().reshape(-1).view(kind) & torch.iinfo(kind).max
