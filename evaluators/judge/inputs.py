"""Inputs that a task does not show: other distributions of values.

A candidate that leaves out what the shown inputs do not exercise (`relu` on positive numbers, a tail that never occurs)
computes another function; these find it. Nothing here is required of a program whose reference cannot do it either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from evaluators.shared import nesting

_LAST_BITS = {torch.float32: (torch.int32, 19), torch.float64: (torch.int64, 48)}  # all but the first four
_ALTERNATING = 0x5555_5555_5555_5555
_SPREAD, _FAR = 4.0, 64.0  # times the task's own; the exponential of 89 overflows single precision


def distributions(values: list[Any], generator: torch.Generator) -> Iterator[tuple[str, list[Any]]]:
    """The same inputs with other values in their floating-point tensors: standard normal ones where the task's own are
    never negative, then its own times 4 and times 64. Integers stay, since they are often indices."""
    _, tensors = nesting.flatten(values)
    if any(_is_positive(one) for one in tensors):
        drawn = [_normal(one, generator) if _is_positive(one) else one for one in tensors]
        yield "normally distributed", nesting.unflatten(values, drawn)
    if any(one.is_floating_point() for one in tensors):
        wide = [one * _SPREAD if one.is_floating_point() else one for one in tensors]
        yield f"{_SPREAD:.0f} times larger", nesting.unflatten(values, wide)
        far = [one * _FAR if one.is_floating_point() else one for one in tensors]
        yield f"{_FAR:.0f} times larger", nesting.unflatten(values, far)


def rounding_alike(values: list[Any]) -> list[Any] | None:
    """The same inputs, but for the last bits of their numbers, which are 0101...: at whatever precision less than its
    own each is taken, it loses a third of a unit in the last place, in the direction in which all others do. Rounding
    errors that a sum averages away otherwise then add up. None without numbers of 32 or 64 bits."""
    _, tensors = nesting.flatten(values)
    if not any(one.dtype in _LAST_BITS for one in tensors):
        return None
    return nesting.unflatten(values, [_with_last_bits(one) if one.dtype in _LAST_BITS else one for one in tensors])


def _with_last_bits(tensor: Tensor) -> Tensor:
    integers, count = _LAST_BITS[tensor.dtype]
    mask = (1 << count) - 1
    changed = ((tensor.view(integers) & ~mask) | (_ALTERNATING & mask)).view(tensor.dtype)
    is_normal = (tensor.abs() >= torch.finfo(tensor.dtype).tiny) & torch.isfinite(tensor)
    return torch.where(is_normal, changed, tensor)


def _is_positive(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0 and bool(tensor.amin() >= 0)


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.empty_like(like)  # keeps the strides
    return drawn.normal_(generator=generator)
