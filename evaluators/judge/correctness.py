"""Compares outputs with the reference's: relative error against float64, scaled by the reference's own error.

There are two measures per output tensor, both relative to its magnitude: the root mean square of the error and the
largest error. A candidate may be a small factor worse than the reference itself is at the task's dtype, and no worse: a
lower precision, an approximation or a constant never passes, whatever the reference's own error. NaN never passes
if the reference has none in that place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ERROR_FACTOR = 16.0  # times the reference's own error
ERROR_FLOOR = 128.0  # times the machine epsilon of the dtype: the least tolerance, for a reference that is nearly exact
MAX_TOLERANCE = 0.05  # whatever the reference's own error: half precision, ill-conditioned programs
UNKNOWN_ERROR = 16.0  # times the machine epsilon: the reference's own error if there is no float64 output
BIAS_FLOOR = 16.0  # times the machine epsilon: the least tolerance of an error that is the same share of every element
_MANY = 1024  # elements; over so many, rounding errors cancel
_NORM_RANGE = 1e-15  # a norm below it has lost digits, since squares of single precision do


@dataclass(frozen=True)
class Comparison:
    """How one output compares: `error` and `tolerance` are relative to the magnitude of the expected output."""

    error: float
    tolerance: float
    reason: str | None = None

    @property
    def passes(self) -> bool:
        return self.reason is None and self.error <= self.tolerance


def relative_errors(actual: Tensor, expected: Tensor) -> tuple[float, float]:
    """(root mean square error over root mean square, largest error over largest magnitude), in float64.

    Both are tensors of one shape. Infinities must stand in the same places with the same sign, and are left out of the
    sums. A NaN in one tensor that the other does not have in that place gives infinity.
    """
    actual, expected = _widened(actual), _widened(expected)
    if actual.numel() == 0:
        return 0.0, 0.0
    finite = torch.isfinite(expected)
    if not bool(finite.all()):
        special_actual, special_expected = actual[~finite], expected[~finite]
        same = (special_actual == special_expected) | (special_actual.isnan() & special_expected.isnan())
        if not bool(same.all()):
            return float("inf"), float("inf")
        actual, expected = actual[finite], expected[finite]
        if actual.numel() == 0:
            return 0.0, 0.0
    error = (actual - expected).abs()
    largest = float(error.max())
    if not math.isfinite(largest):
        return float("inf"), float("inf")
    magnitude = expected.abs()
    scale = float(magnitude.max())
    tiny = torch.finfo(torch.float32).tiny
    rms = _root_mean_square(error, largest) / max(_root_mean_square(magnitude, scale), tiny)
    return rms, largest / max(scale, tiny)


def _root_mean_square(values: Tensor, largest: float) -> float:
    """The root mean square of non-negative values. They are divided by their largest first, since squares overflow
    beyond 1e154."""
    return largest * float((values / largest).square().mean().sqrt()) if largest else 0.0


def errors_of_many(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[tuple[float, float]]:
    """`relative_errors` of many (actual, expected) pairs of inexact tensors, with one wait for the device.

    Norms are taken at single precision (double for float64). That is precise enough to compare them with a tolerance.
    If it overflows, or if a value is not finite, `relative_errors` decides.
    """
    norms = []
    for actual, expected in pairs:
        if actual.numel() and not actual.is_complex():
            wide = torch.float64 if expected.dtype == torch.float64 else torch.float32
            magnitude = expected.to(wide)
            error = actual.to(wide) - magnitude
            norms += [torch.linalg.vector_norm(part, order) for order in (2, torch.inf) for part in (error, magnitude)]
    figures = iter(torch.stack([norm.to(torch.float64) for norm in norms]).tolist() if norms else ())
    errors = []
    for actual, expected in pairs:
        if actual.numel() and not actual.is_complex():
            error_norm, norm, largest, scale = (next(figures) for _ in range(4))
            if math.isfinite(error_norm + norm + largest + scale) and norm > _NORM_RANGE:
                errors.append((error_norm / norm, largest / scale))
                continue
        errors.append(relative_errors(actual, expected))
    return errors


def _widened(tensor: Tensor) -> Tensor:
    """The tensor in float64; a complex number becomes two."""
    return (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).to(torch.float64)


def is_inexact(dtype: torch.dtype) -> bool:
    """Whether values of the dtype carry rounding errors. Values of any other dtype must be equal."""
    return dtype.is_floating_point or dtype.is_complex


def explains(own: tuple[float, float]) -> bool:
    """Whether the reference approximates the float64 output. If not, its own error is too large to be the measure of a
    candidate's."""
    return ERROR_FACTOR * max(own) <= MAX_TOLERANCE


def unknown_errors(dtype: torch.dtype) -> tuple[float, float]:
    """The assumed own errors of a reference without a float64 output."""
    error = UNKNOWN_ERROR * torch.finfo(dtype).eps if is_inexact(dtype) else 0.0
    return error, error


def compare(
    actual: Tensor, expected: Tensor, own: tuple[float, float], dtype: torch.dtype, floor: float = ERROR_FLOOR
) -> Comparison:
    """Compares one output tensor with the expected one, in float64 or by the reference at the task's `dtype`.

    `own`: the reference's own errors at that dtype, as `relative_errors` measures them. `floor`: the least tolerance in
    machine epsilons of the dtype. Integer and boolean outputs must be equal.
    """
    if not is_inexact(dtype):
        wrong = int((actual != expected).sum())
        return Comparison(wrong / max(expected.numel(), 1), 0.0, None if wrong == 0 else f"{wrong} elements differ")
    return _comparison_of(relative_errors(actual, expected), own, dtype, actual, expected, floor)


def compare_many(
    outputs: Sequence[tuple[Sequence[Tensor], Sequence[Tensor]]],
    own: Sequence[tuple[float, float]],
    dtypes: Sequence[torch.dtype],
    floor: float = ERROR_FLOOR,
) -> list[Comparison]:
    """`compare` of several (actual, expected) outputs of a program, each a list of tensors. One result per output."""
    inexact = [index for index, dtype in enumerate(dtypes) if is_inexact(dtype)]
    pairs = [(actual[index], expected[index]) for actual, expected in outputs for index in inexact]
    errors = iter(errors_of_many(pairs))
    results = []
    for actual, expected in outputs:
        comparisons = []
        for index, dtype in enumerate(dtypes):
            if index in inexact:
                outputs_of = actual[index], expected[index]
                comparisons.append(_comparison_of(next(errors), own[index], dtype, *outputs_of, floor))
            else:
                comparisons.append(compare(actual[index], expected[index], own[index], dtype))
        results.append(worst_of(comparisons))
    return results


def compare_bias(actual: Tensor, reference: Tensor, expected: Tensor, dtype: torch.dtype) -> Comparison:
    """Compares how much longer the candidate's output and the `reference`'s are than the `expected` one, along its
    direction.

    Rounding errors of many elements cancel there. A coarser rounding of all elements in one direction does not. An
    output of fewer than 1024 elements passes.
    """
    if expected.numel() < _MANY:
        return Comparison(0.0, 0.0)
    bias, own = (abs(_bias(output, expected)) for output in (actual, reference))
    tolerance = max(ERROR_FACTOR * own, BIAS_FLOOR * torch.finfo(dtype).eps)
    reason = f"the output is off by {bias:.2e} as a whole, at most {tolerance:.2e} allowed"
    return Comparison(bias, tolerance, None if bias <= tolerance else reason)


def _bias(actual: Tensor, expected: Tensor) -> float:
    """The projection of the error on the expected output, relative to that output."""
    expected = _widened(expected)
    scale = max(float(expected.abs().max()), torch.finfo(torch.float32).tiny)
    expected, error = expected / scale, (_widened(actual) - expected) / scale
    return float((error * expected).sum() / expected.square().sum())


def _comparison_of(
    errors: tuple[float, float],
    own: tuple[float, float],
    dtype: torch.dtype,
    actual: Tensor,
    expected: Tensor,
    floor: float = ERROR_FLOOR,
) -> Comparison:
    least = floor * torch.finfo(dtype).eps
    tolerances = [min(max(ERROR_FACTOR * own_error, least), MAX_TOLERANCE) for own_error in own]
    error, tolerance = max(zip(errors, tolerances, strict=True), key=lambda pair: pair[0] / pair[1])
    if error <= tolerance:
        return Comparison(error, tolerance)
    if bool(torch.isnan(actual).any()) and not bool(torch.isnan(expected).any()):
        return Comparison(error, tolerance, "the output holds NaN")
    return Comparison(error, tolerance, f"relative error {error:.2e}, at most {tolerance:.2e} allowed")


def worst_of(comparisons: Sequence[Comparison]) -> Comparison:
    """The first comparison that fails, or else the one nearest to failing. Names the output if there are several.

    Without any comparison nothing differs, so the result passes. The judge refuses a task whose output holds no tensor.
    """
    for index, comparison in enumerate(comparisons):
        if not comparison.passes:
            where = f"output[{index}]: " if len(comparisons) > 1 else ""
            return Comparison(comparison.error, comparison.tolerance, f"{where}{comparison.reason}")
    return max(comparisons, key=_nearness_to_failing, default=Comparison(0.0, 0.0))


def _nearness_to_failing(comparison: Comparison) -> float:
    return comparison.error / comparison.tolerance if comparison.tolerance else 0.0
