"""Outputs that take far less work than the reference does: all slices are equal, or the output is affine in the inputs.

Both are measured on calls of the reference. Its source is never read.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from evaluators.audit.calls import Call, Cheat, ReferenceCalls, differ_in_shape, distance
from evaluators.judge.correctness import Comparison, compare, is_inexact
from evaluators.shared import nesting
from evaluators.tasks import ProgramError

_AFFINE = 1e-9  # relative, in float64
_ELSEWHERE = -3.0  # times other inputs: reaches values that the task's own inputs may never have
_MUCH_LESS = 4.0  # times less work: a collapse, beyond what tiling or fusing saves


def describe_repeats(calls: Sequence[Call]) -> str | None:
    """A sentence if every output is one slice over and over in every call, else None."""
    first = calls[0]
    if any(differ_in_shape(call.expected, first.expected) for call in calls):
        return None
    sentences = []
    for index, output in enumerate(first.expected):
        for axis in (axis for axis, size in enumerate(output.shape) if size > 1):
            cheat = Cheat(_compare_repeated(call, index, axis) for call in calls)
            if cheat.passes:
                error = max(comparison.error for comparison in cheat)
                repeats = f"along axis {axis} all {output.shape[axis]} slices of the output are the same"
                sentences.append(f"{repeats} (relative error {error:.1e} in {len(calls)} calls)")
                break
        else:
            return None
    return "; ".join(sentences)


def _compare_repeated(call: Call, index: int, axis: int) -> Comparison:
    """How the evaluator would judge an output that repeats its first slice along an axis."""
    expected = call.expected[index]
    repeated = expected.narrow(axis, 0, 1).expand_as(expected)
    return compare(repeated, expected, call.own_errors[index], call.outputs[index].dtype)


def describe_affine(reference: ReferenceCalls) -> str | None:
    """A sentence if the output is affine in the inputs and takes far fewer multiply-adds as an affine map, else
    None."""
    first = reference.calls[0]
    if not (_is_affine(reference, reference.model, torch.float32, 1e-3) and first.has_known_errors):
        return None
    if not _is_affine(reference, reference.wide, torch.float64, _AFFINE):
        return None
    plain = reference.run(reference.wide, first.inputs, torch.float64)
    if distance(plain, reference.run(reference.wide, first.inputs, torch.float64, seed=1)) > _AFFINE:
        return None  # dropout: another map in each call
    with FlopCounterMode(display=False) as flops:
        reference.run(reference.wide, first.inputs, torch.float64)
    floating = [tensor for tensor in nesting.flatten(first.inputs)[1] if tensor.is_floating_point()]
    elements = sum(tensor.numel() for tensor in floating) * sum(tensor.numel() for tensor in plain)
    needed = elements // _count_samples(reference, plain)
    done = flops.get_total_flops() // 2
    if done < _MUCH_LESS * needed:
        return None
    return f"the output is affine in the inputs: {needed:,} multiply-adds give it, the reference does {done:,}"


def _is_affine(reference: ReferenceCalls, model: nn.Module, dtype: torch.dtype, tolerance: float) -> bool:
    """Whether f(x) + f(y) = f(x + y) + f(0) for the floating-point inputs, and f is not constant. False if the program
    does not take one of these inputs."""
    first, second = (call.inputs for call in reference.calls[:2])
    pairs = list(zip(nesting.flatten(first)[1], nesting.flatten(second)[1], strict=True))
    if any(x.shape != y.shape for x, y in pairs):
        return False
    points = []
    for x_share, y_share in ((1, 0), (0, _ELSEWHERE), (1, _ELSEWHERE), (0, 0)):
        mixed = [x.to(dtype) * x_share + y.to(dtype) * y_share if is_inexact(x.dtype) else x for x, y in pairs]
        try:
            points.append(reference.run(model, nesting.unflatten(first, mixed), dtype))
        except ProgramError:
            return False
    at_x, at_y, at_sum, at_zero = points
    if not all(is_inexact(tensor.dtype) for tensor in at_x) or any(map(differ_in_shape, points, points[1:])):
        return False
    left = [x + y for x, y in zip(at_x, at_y, strict=True)]
    right = [total + zero for total, zero in zip(at_sum, at_zero, strict=True)]
    return distance(right, left) <= tolerance < distance(at_zero, at_x)


def _count_samples(reference: ReferenceCalls, outputs: list[Tensor]) -> int:
    """How many samples the leading axes hold: along these, no input of the first call affects another's output."""
    x, y = (nesting.flatten(call.inputs)[1] for call in reference.calls[:2])
    samples = 1
    for axis in range(min(tensor.dim() for tensor in (*x, *outputs))):
        size = x[0].shape[axis]
        if any(tensor.shape[axis] != size for tensor in (*x, *outputs)):
            break
        mixed = [tensor.clone() for tensor in x]
        for target, source in zip(mixed, y, strict=True):
            target.narrow(axis, 0, 1).copy_(source.narrow(axis, 0, 1))
        inputs = nesting.unflatten(reference.calls[0].inputs, mixed)
        changed = reference.run(reference.wide, inputs, torch.float64)
        rest = ([tensor.narrow(axis, 1, size - 1) for tensor in tensors] for tensors in (changed, outputs))
        if distance(*rest) > _AFFINE:
            break
        samples *= size
    return samples
