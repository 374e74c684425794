"""Inputs that a task does not show: other distributions of values.

A candidate may leave out work that the shown inputs do not need (`relu` on positive numbers, a tail that never occurs).
Then it computes another function, and these inputs show it. They must never be required of a candidate if the reference
does not take them, either.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from evaluators.shared import nesting
from evaluators.tasks import TaskProgram

_LAST_BITS = {torch.float32: (torch.int32, 19), torch.float64: (torch.int64, 48)}  # of the mantissa, all but four
_BEYOND_HALF = {  # of the mantissa, all but ten; and an odd factor, which spreads the others over all integers
    torch.float32: (torch.int32, 13, 0x1E3779B1),
    torch.float64: (torch.int64, 42, 0x1E3779B97F4A7C15),
}
_ALTERNATING = 0x5555_5555_5555_5555
_LEAST_LEANING, _MOST_LEANING = 0.7, 0.95  # share of the numbers that lean
_LARGER, _FAR = 4.0, 64.0  # times the task's own
_REACH, _MOST = 100.0, 4096.0  # the exponential of 89 overflows single precision; the largest factor to get there
_FEW = 1 / 1024  # share of the numbers: a row of many has one of them, and a sample of some has none


Named = tuple[str, list[Any]]
"""Inputs with a name for messages."""


class CallInputs:
    """Draws the task's own inputs for one call after the other.

    `lean`: from now on they are `leaning`. It is for timed calls: what computes with fewer digits in these alone is
    wrong there. The reference must be reliable on such inputs.
    """

    def __init__(self, program: TaskProgram) -> None:
        self.lean = False
        self._program = program

    def draw(self) -> list[Any]:
        """Inputs that nobody has seen before."""
        values = self._program.inputs(secrets.randbits(48))
        return leaning(values) if self.lean else values


def distributions(values: list[Any], generator: torch.Generator) -> Iterator[list[Named]]:
    """The same inputs with other values in their floating-point tensors, one kind of them after the other.

    First come standard normal values for tensors that are never negative; this kind is empty if there are none. Then
    come the task's own values times 4, then a few of them far larger, then all of them. Integers stay, since they are
    often indices.

    A kind is a list of alternatives, of which the first counts on which the reference can be relied: the farthest
    values, at which exponentials overflow, and then values times 64.
    """
    _, tensors = nesting.flatten(values)
    if not any(tensor.is_floating_point() for tensor in tensors):
        return

    def named(name: str, changed: Iterable[Tensor]) -> Named:
        return name, nesting.unflatten(values, list(changed))

    def far(where: str, changed: Sequence[Tensor], farther: Sequence[Tensor]) -> list[Named]:
        plain = named(f"{_FAR:.0f} times larger{where}", changed)
        is_farther = any(not torch.equal(one, other) for one, other in zip(changed, farther, strict=True))
        return [named(f"as large as {_REACH:.0f}{where}", farther), plain] if is_farther else [plain]

    positive = [_is_never_negative(tensor) for tensor in tensors]
    drawn = (
        _draw_normal(tensor, generator) if is_positive else tensor
        for tensor, is_positive in zip(tensors, positive, strict=True)
    )
    yield [named("normally distributed", drawn)] if any(positive) else []
    yield [named(f"{_LARGER:.0f} times larger", (_scaled(tensor, _LARGER) for tensor in tensors))]
    few = [(tensor, _few(tensor, generator)) for tensor in tensors]
    plain = [_with(tensor, places, _scaled(tensor, _FAR)) for tensor, places in few]
    yield far(" at few places", plain, [_with(tensor, places, _reaching(tensor)) for tensor, places in few])
    everywhere = [_scaled(tensor, _FAR) for tensor in tensors]
    yield far("", everywhere, [_scaled(tensor, max(_FAR, _factor(tensor))) for tensor in tensors])


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


def leaning(values: list[Any]) -> list[Any]:
    """The same inputs, in which most numbers of 32 or 64 bits round in one direction, changed by a thousandth at most.

    What half precision would lose of such a number is 0101..., or 1010... in all of them: a third of a unit in its last
    place, and a sixth of that of any lower precision in the mean. The other numbers, 5 to 30 % of them, are left as
    they are, so that nothing can be computed with fewer digits. So are all that lose nothing at half precision.
    """
    _, tensors = nesting.flatten(values)
    pattern = random.choice((_ALTERNATING, _ALTERNATING >> 1))
    share = random.uniform(_LEAST_LEANING, _MOST_LEANING)
    return nesting.unflatten(values, [_lean(tensor, pattern, share) for tensor in tensors])


def _set_last_bits(tensor: Tensor) -> Tensor:
    integers, count = _LAST_BITS[tensor.dtype]
    mask = (1 << count) - 1
    changed = ((tensor.view(integers) & ~mask) | (_ALTERNATING & mask)).view(tensor.dtype)
    is_normal = (tensor.abs() >= torch.finfo(tensor.dtype).tiny) & torch.isfinite(tensor)
    return torch.where(is_normal, changed, tensor)


def _lean(tensor: Tensor, pattern: int, share: float) -> Tensor:
    if tensor.dtype not in _BEYOND_HALF:
        return tensor
    integers, count, factor = _BEYOND_HALF[tensor.dtype]
    mask, largest = (1 << count) - 1, torch.iinfo(integers).max
    bits = tensor.view(integers)
    beyond = bits & mask
    spread = bits >> count
    spread *= factor
    chosen = spread < int((2 * share - 1) * largest)
    chosen &= beyond != 0  # zeros and infinities stay; a NaN stays one
    beyond ^= pattern & mask
    beyond ^= bits
    return torch.where(chosen, beyond, bits).view(tensor.dtype)


def _scaled(tensor: Tensor, factor: float) -> Tensor:
    return tensor * factor if tensor.is_floating_point() else tensor


def _few(like: Tensor, generator: torch.Generator) -> Tensor:
    """Few places at random, one at least."""
    drawn = torch.rand(like.shape, generator=generator, device=like.device)
    return drawn < max(_FEW, float(drawn.amin()) + 1e-6 if drawn.numel() else 0.0)


def _with(tensor: Tensor, places: Tensor, others: Tensor) -> Tensor:
    """The tensor with others of the same form at some places."""
    changed = torch.empty_like(tensor)  # keeps the strides
    return changed.copy_(torch.where(places, others, tensor))


def _reaching(tensor: Tensor) -> Tensor:
    """Each number so far larger that it reaches what `_factor` is for, and 64 times larger if that is more."""
    if not tensor.is_floating_point():
        return tensor
    least = _factor(tensor) * float(tensor.abs().amax()) if tensor.numel() else 0.0
    return tensor.sign() * (_FAR * tensor.abs()).clamp(min=least)


def _factor(tensor: Tensor) -> float:
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
