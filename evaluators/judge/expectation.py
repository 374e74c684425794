"""What a candidate's output should be: the reference's own in float64, and how far the reference itself is from it."""

from __future__ import annotations

import copy
import logging
from typing import Any

import torch
from torch import Tensor, nn

from evaluators.judge.correctness import ERROR_FACTOR, explains, is_inexact, relative_errors, unknown_errors
from evaluators.shared import nesting
from evaluators.tasks import TaskProgram

_log = logging.getLogger(__name__)
_SAME = 1e-11  # between two calls in float64 on the same inputs, whose sums may have another order
_DRAWN = 4  # elements of an output
Errors = list[tuple[float, float]]


class Expectation:
    """The reference model in float64, called by the judge on inputs that both sides got."""

    def __init__(self, program: TaskProgram, model: nn.Module) -> None:
        """Takes over `model`."""
        self._program = program
        self._model = model.to(torch.float64)
        self.upcast_fails = False

    def of(self, inputs: list[Any], seed: int, reference: list[Tensor]) -> tuple[list[Tensor], Errors, bool]:
        """The expected outputs beside the reference's, the reference's own errors, and whether these are known.

        Against float64 where that explains the reference's output, else (integers, overflow, dropout that draws
        otherwise) the reference's output itself.
        """
        exact = self._exact(inputs, seed, reference) or reference
        expected, errors, all_known = [], [], True
        for given, wide in zip(reference, exact, strict=True):
            own = relative_errors(given, wide)
            known = wide is not given and is_inexact(given.dtype) and explains(own)
            all_known = all_known and known
            expected.append(wide if known else given)
            errors.append(own if known else unknown_errors(given.dtype))
        return expected, errors, all_known

    def of_rounded(self, inputs: list[Any], seed: int, reference: list[Tensor]) -> tuple[list[Tensor], Errors] | None:
        """The exact outputs, and how far any sound program may be off on these very inputs: as far as the reference,
        or as rounding the inputs once more moves the exact outputs. Where these are what is left of terms that cancel,
        that is far, however lucky the reference was. None where float64 explains neither, or where the reference keeps
        a state, which would pass for rounding.
        (Backward error analysis: Higham, Accuracy and Stability of Numerical Algorithms, chapter 1.)"""
        calls = (inputs, rounded(inputs), inputs)
        exact, nearby, again = (self._exact(one, seed, reference) for one in calls)
        if exact is None or nearby is None or again is None:
            return None
        expected, errors = [], []
        for given, wide, near, same in zip(reference, exact, nearby, again, strict=True):
            if not is_inexact(given.dtype):
                expected.append(given)
                errors.append((0.0, 0.0))
                continue
            own, moved = relative_errors(given, wide), relative_errors(near, wide)
            keeps_state = max(relative_errors(same, wide)) > _SAME
            if keeps_state or (not explains(own) and max(own) > ERROR_FACTOR * max(moved)):
                return None
            expected.append(wide)
            errors.append((max(own[0], moved[0]), max(own[1], moved[1])))
        return expected, errors

    def _exact(self, inputs: list[Any], seed: int, reference: list[Tensor]) -> list[Tensor] | None:
        """The reference's output in float64, or None for a program that cannot be upcast."""
        if self.upcast_fails:
            return None
        _, tensors = nesting.flatten(inputs)
        wide = [one.to(torch.float64) if one.is_floating_point() else one.clone() for one in tensors]
        try:
            with torch.no_grad(), self._program.seeded(seed):
                _, outputs = nesting.flatten(self._model(*nesting.unflatten(inputs, wide)))
        except Exception:  # noqa: BLE001  (a program may refuse another dtype in any way; it is then compared at its own)
            _log.debug("task %s: not in float64", self._program.task.id, exc_info=True)
            self.upcast_fails = True
            return None
        return outputs if [one.shape for one in outputs] == [one.shape for one in reference] else None

    def terms(self, inputs: list[Any], seed: int) -> int | None:
        """How many numbers of the inputs and parameters an element of the outputs depends on: the most of some that
        are drawn, counted by its gradient in float64. None where that is not to be had."""
        _, tensors = nesting.flatten(inputs)
        wide = [one.to(torch.float64).requires_grad_() if one.is_floating_point() else one.clone() for one in tensors]
        counts = []
        try:
            model = copy.deepcopy(self._model)  # a state that it keeps is not to know of this call
            sources = [one for one in (*wide, *model.parameters()) if one.requires_grad]
            with torch.enable_grad(), self._program.seeded(seed):
                passed = [one.clone() for one in wide]  # a program may change its inputs in place
                _, outputs = nesting.flatten(model(*nesting.unflatten(inputs, passed)))
                for output in (one for one in outputs if one.requires_grad):
                    for at in torch.randint(output.numel(), (_DRAWN,)).tolist():
                        found = torch.autograd.grad(
                            output.reshape(-1)[at], sources, retain_graph=True, allow_unused=True
                        )
                        counts.append(sum(int(torch.count_nonzero(one)) for one in found if one is not None))
        except Exception:  # noqa: BLE001  (it may be one that has no gradient, or whose gradient needs too much memory)
            _log.debug("task %s: no gradient", self._program.task.id, exc_info=True)
            return None
        return max(counts, default=None)


def rounded(inputs: list[Any]) -> list[Any]:
    """The inputs, each number of them moved by half a unit in its last place (of float64 by one), up or down."""
    _, tensors = nesting.flatten(inputs)
    generator = torch.Generator(tensors[0].device).manual_seed(0) if tensors else None
    moved = []
    for one in tensors:
        if one.is_floating_point():
            signs = (torch.randint(0, 2, one.shape, generator=generator, device=one.device) * 2 - 1).to(torch.float64)
            step = max(0.5 * torch.finfo(one.dtype).eps, torch.finfo(torch.float64).eps)
            one = one.to(torch.float64) * (1 + step * signs)
        moved.append(one)
    return nesting.unflatten(inputs, moved)
