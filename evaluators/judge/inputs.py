"""Inputs that a task does not show: other distributions of values.

A candidate may leave out work that the shown inputs do not need (`relu` on positive numbers, a tail that never occurs).
Then it computes another function, and these inputs show it. They must never be required of a candidate if the reference
does not take them, either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from evaluators.shared import nesting

_LAST_BITS = {torch.float32: (torch.int32, 19), torch.float64: (torch.int64, 48)}  # of the mantissa, all but four
_ALTERNATING = 0x5555_5555_5555_5555
_LARGER, _FAR = 4.0, 64.0  # times the task's own
_REACH, _MOST = 100.0, 4096.0  # the exponential of 89 overflows single precision; the largest factor to get there
_FEW = 1 / 1024  # share of the numbers: a row of many has one of them, and a sample of some has none


Named = tuple[str, list[Any]]
"""Inputs with a name for messages."""


def distributions(values: list[Any], generator: torch.Generator) -> Iterator[list[Named]]:
    """The same inputs with other values in their floating-point tensors, one kind of them after the other.

    If a tensor is never negative, standard normal values in such tensors come first, and the task's own values times 4
    in the others. Of signed tensors alone come values times 4. Then a few of the values are far larger, then values are
    4 times larger if they have not been yet, then all are far larger. Integers stay, since they are often indices.

    A kind is a list of alternatives, of which the first counts on which the reference can be relied: the farthest
    values, at which exponentials overflow, and then values times 64.
    """
    _, tensors = nesting.flatten(values)
    if not any(tensor.is_floating_point() for tensor in tensors):
        return
    larger = f"{_LARGER:.0f} times larger"

    def named(name: str, changed: Iterable[Tensor]) -> Named:
        return name, nesting.unflatten(values, list(changed))

    def far(places: Callable[[Tensor], Tensor], where: str) -> list[Named]:
        chosen = [places(tensor) for tensor in tensors]
        found = [named(f"{_FAR:.0f} times larger{where}", map(_far, tensors, chosen, repeat(_FAR)))]
        reaching = [max(_FAR, _reaching(tensor)) for tensor in tensors]
        if any(factor > _FAR for factor in reaching):
            found.insert(0, named(f"as large as {_REACH:.0f}{where}", map(_far, tensors, chosen, reaching)))
        return found

    positive = [_is_never_negative(tensor) for tensor in tensors]
    if any(positive):
        drawn = (
            _draw_normal(tensor, generator) if is_positive else _scaled(tensor, _LARGER)
            for tensor, is_positive in zip(tensors, positive, strict=True)
        )
        yield [named("normally distributed" + ("" if all(positive) else f", or {larger}"), drawn)]
    else:
        yield [named(larger, (_scaled(tensor, _LARGER) for tensor in tensors))]
    yield far(lambda tensor: _few(tensor, generator), " at few places")
    if any(positive):
        yield [named(larger, (_scaled(tensor, _LARGER) for tensor in tensors))]
    yield far(lambda tensor: torch.ones_like(tensor, dtype=torch.bool), "")


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


def _few(like: Tensor, generator: torch.Generator) -> Tensor:
    """Few places at random, one at least."""
    drawn = torch.rand(like.shape, generator=generator, device=like.device)
    return drawn < max(_FEW, float(drawn.amin()) + 1e-6 if drawn.numel() else 0.0)


def _far(tensor: Tensor, places: Tensor, factor: float) -> Tensor:
    """The tensor with the numbers at some places that much larger."""
    return _scaled(tensor, torch.where(places, factor, 1.0).to(tensor.dtype)) if tensor.is_floating_point() else tensor


def _reaching(tensor: Tensor) -> float:
    """The factor by which a tensor's largest number reaches `_REACH`, within bounds."""
    if not (tensor.is_floating_point() and tensor.numel()):
        return 0.0
    largest = float(tensor.abs().amax())
    return min(_REACH / largest, _MOST) if largest > 0.0 else 0.0


def _is_never_negative(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0 and bool(tensor.amin() >= 0)


def _draw_normal(like: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.empty_like(like)  # keeps the strides
    return drawn.normal_(generator=generator)
