"""The output that a candidate should have: the reference's in float64, and how far the reference itself is from it.

Runs the task's program in the judge's own process, never a candidate's.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from evaluators.judge.correctness import ERROR_FACTOR, explains, is_inexact, relative_errors, unknown_errors
from evaluators.shared import nesting
from evaluators.tasks import TaskProgram

_log = logging.getLogger(__name__)
_SAME = 1e-11  # relative error between two calls in float64 on the same inputs: sums may have another order
_DRAWN = 4  # elements of an output, for which terms are counted
Errors = list[tuple[float, float]]
"""Of each output tensor: the relative root mean square error and the relative largest error."""


class Expectation:
    """The reference model in float64, which the judge calls on inputs that both sides got."""

    def __init__(self, program: TaskProgram, model: nn.Module) -> None:
        """`model` is changed: it must have no other user."""
        self._program = program
        self._model = model.to(torch.float64)
        self.upcast_fails = False

    def change(self, state: Mapping[str, Tensor]) -> None:
        """Gives the model other weights."""
        self._model.load_state_dict(state)

    def expect(self, inputs: list[Any], seed: int, reference: list[Tensor]) -> tuple[list[Tensor], Errors, bool]:
        """The expected outputs, the reference's own errors, and whether all of these were measured.

        `reference`: the outputs of the reference at the task's dtype, on these inputs under this seed. An expected
        output is the one in float64 if that explains the reference's. Otherwise (integers, overflow, dropout that draws
        other numbers) it is the reference's own output, whose error is assumed, not measured.
        """
        exact = self._exact(inputs, seed, reference) or reference
        expected, errors, all_measured = [], [], True
        for given, wide in zip(reference, exact, strict=True):
            own = relative_errors(given, wide)
            is_measured = wide is not given and is_inexact(given.dtype) and explains(own)
            all_measured = all_measured and is_measured
            expected.append(wide if is_measured else given)
            errors.append(own if is_measured else unknown_errors(given.dtype))
        return expected, errors, all_measured

    def expect_rounded(
        self, inputs: list[Any], seed: int, reference: list[Tensor]
    ) -> tuple[list[Tensor], Errors] | None:
        """The exact outputs, and the error that any sound program may have on these very inputs.

        That is the reference's error, or the change of the exact outputs if the inputs are rounded once more, whichever
        is larger. If an output is the small difference of large terms, the change is large, even if the reference
        happens to be accurate. (Backward error analysis: Higham, Accuracy and Stability of Numerical Algorithms,
        chapter 1.)

        None if float64 explains neither, or if the reference keeps a state, whose effect would be taken for rounding.
        """
        calls = (inputs, rounded(inputs), inputs)
        exact, nearby, again = (self._exact(values, seed, reference) for values in calls)
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
        wide = [tensor.to(torch.float64) if tensor.is_floating_point() else tensor.clone() for tensor in tensors]
        try:
            with torch.no_grad(), self._program.seeded(seed):
                _, outputs = nesting.flatten(self._model(*nesting.unflatten(inputs, wide)))
        except Exception:  # noqa: BLE001  (a program may refuse another dtype in any way: then it is compared at its own)
            _log.debug("task %s: not in float64", self._program.task.id, exc_info=True)
            self.upcast_fails = True
            return None
        shapes = [output.shape for output in outputs]
        return outputs if shapes == [output.shape for output in reference] else None

    def count_terms(self, inputs: list[Any], seed: int) -> int | None:
        """How many numbers of the inputs and parameters an element of the outputs depends on.

        Some elements are drawn at random; the largest count is returned. The count is that of the non-zero elements of
        the gradient in float64. None if there is no gradient.
        """
        _, tensors = nesting.flatten(inputs)
        wide = [
            tensor.to(torch.float64).requires_grad_() if tensor.is_floating_point() else tensor.clone()
            for tensor in tensors
        ]
        counts = []
        try:
            model = copy.deepcopy(self._model)  # this call must leave no trace in a state that the model keeps
            sources = [tensor for tensor in (*wide, *model.parameters()) if tensor.requires_grad]
            with torch.enable_grad(), self._program.seeded(seed):
                passed = [tensor.clone() for tensor in wide]  # a program may change its inputs in place
                _, outputs = nesting.flatten(model(*nesting.unflatten(inputs, passed)))
                for output in (tensor for tensor in outputs if tensor.requires_grad):
                    for at in torch.randint(output.numel(), (_DRAWN,)).tolist():
                        element = output.reshape(-1)[at]
                        gradients = torch.autograd.grad(element, sources, retain_graph=True, allow_unused=True)
                        counts.append(sum(int(torch.count_nonzero(part)) for part in gradients if part is not None))
        except Exception:  # noqa: BLE001  (a program may have no gradient, or one that needs too much memory)
            _log.debug("task %s: no gradient", self._program.task.id, exc_info=True)
            return None
        return max(counts, default=None)


def rounded(inputs: list[Any]) -> list[Any]:
    """The inputs with each number moved by half a unit in its last place (in float64 by one unit), up or down.

    The directions are drawn under a fixed seed.
    """
    _, tensors = nesting.flatten(inputs)
    generator = torch.Generator(tensors[0].device).manual_seed(0) if tensors else None
    moved = []
    for tensor in tensors:
        if tensor.is_floating_point():
            bits = torch.randint(0, 2, tensor.shape, generator=generator, device=tensor.device)
            signs = (bits * 2 - 1).to(torch.float64)
            step = max(0.5 * torch.finfo(tensor.dtype).eps, torch.finfo(torch.float64).eps)
            tensor = tensor.to(torch.float64) * (1 + step * signs)
        moved.append(tensor)
    return nesting.unflatten(inputs, moved)
