"""Inputs that a task does not show: other distributions of values.

A candidate may leave out work that the shown inputs do not need (`relu` on positive numbers, a tail that never occurs).
Then it computes another function, and these inputs show it. They must never be required of a candidate if the reference
does not take them, either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from evaluators.shared import nesting

_LAST_BITS = {torch.float32: (torch.int32, 19), torch.float64: (torch.int64, 48)}  # of the mantissa, all but four
_ALTERNATING = 0x5555_5555_5555_5555
_LARGER, _FAR = 4.0, 64.0  # times the task's own; the exponential of 89 overflows single precision
_FEW = 1 / 1024  # share of the numbers: a row of many has one of them, and a sample of some has none


def distributions(values: list[Any], generator: torch.Generator) -> Iterator[tuple[str, list[Any]]]:
    """The same inputs with other values in their floating-point tensors, each with a name for messages.

    First come standard normal values for tensors that are never negative, then the task's own values times 4, then with
    a few of them times 64, then all of them. Integers stay, since they are often indices.
    """
    _, tensors = nesting.flatten(values)
    if any(_is_never_negative(tensor) for tensor in tensors):
        drawn = [_draw_normal(tensor, generator) if _is_never_negative(tensor) else tensor for tensor in tensors]
        yield "normally distributed", nesting.unflatten(values, drawn)
    if any(tensor.is_floating_point() for tensor in tensors):
        yield f"{_LARGER:.0f} times larger", nesting.unflatten(values, [_scaled(tensor, _LARGER) for tensor in tensors])
        few = [_scaled(tensor, _few_factors(tensor, generator)) for tensor in tensors]
        yield f"{_FAR:.0f} times larger at few places", nesting.unflatten(values, few)
        yield f"{_FAR:.0f} times larger", nesting.unflatten(values, [_scaled(tensor, _FAR) for tensor in tensors])


def rounding_alike(values: list[Any]) -> list[Any] | None:
    """The same inputs with 0101... in the last bits of their numbers. None without numbers of 32 or 64 bits.

    If such a number is rounded to a lower precision, it loses a third of a unit in the last place, whatever the
    precision, and all numbers lose it in the same direction. So rounding errors that a sum would average away add up.
    """
    _, tensors = nesting.flatten(values)
    if not any(tensor.dtype in _LAST_BITS for tensor in tensors):
        return None
    changed = [_set_last_bits(tensor) if tensor.dtype in _LAST_BITS else tensor for tensor in tensors]
    return nesting.unflatten(values, changed)


def _set_last_bits(tensor: Tensor) -> Tensor:
    integers, count = _LAST_BITS[tensor.dtype]
    mask = (1 << count) - 1
    changed = ((tensor.view(integers) & ~mask) | (_ALTERNATING & mask)).view(tensor.dtype)
    is_normal = (tensor.abs() >= torch.finfo(tensor.dtype).tiny) & torch.isfinite(tensor)
    return torch.where(is_normal, changed, tensor)


def _scaled(tensor: Tensor, factor: float | Tensor) -> Tensor:
    return tensor * factor if tensor.is_floating_point() else tensor


def _few_factors(like: Tensor, generator: torch.Generator) -> Tensor:
    """The factor of few numbers, at random places, and 1 of all others."""
    drawn = torch.rand(like.shape, generator=generator, device=like.device)
    return torch.where(drawn < max(_FEW, float(drawn.amin()) + 1e-6 if drawn.numel() else 0.0), _FAR, 1.0).to(
        like.dtype
    )


def _is_never_negative(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0 and bool(tensor.amin() >= 0)


def _draw_normal(like: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.empty_like(like)  # keeps the strides
    return drawn.normal_(generator=generator)
