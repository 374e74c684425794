"""Calls of one task's reference, and how the evaluator would judge other outputs in place of its own.

Everything here runs on the CPU, on copies of the inputs, with random numbers that follow from the audit's seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from evaluators.judge.correctness import Comparison, compare, is_inexact, relative_errors, worst_of
from evaluators.judge.expectation import Errors, Expectation
from evaluators.judge.inputs import distributions
from evaluators.records import Task
from evaluators.shared import nesting
from evaluators.tasks import ProgramError, TaskProgram

_INPUT_SEEDS = 3


@dataclass(frozen=True)
class Call:
    """One call of the reference: its `inputs` and `outputs`; the outputs that the evaluator would expect of a program;
    and the reference's own errors, which mean something only if `has_known_errors`."""

    inputs: list[Any]
    outputs: list[Tensor]
    expected: list[Tensor]
    own_errors: Errors
    has_known_errors: bool

    def compare(self, outputs: Sequence[Tensor], *, with_own: bool = False) -> Comparison:
        """How the evaluator would judge a program that returns `outputs`; `with_own` compares them with the
        reference's own outputs in place of the expected ones."""
        wanted = self.outputs if with_own else self.expected
        if differ_in_shape(outputs, wanted):
            return Comparison(float("inf"), 0.0, "another shape")
        parts = zip(outputs, wanted, self.own_errors, self.outputs, strict=True)
        return worst_of([compare(output, expected, own, made.dtype) for output, expected, own, made in parts])

    @property
    def last_place(self) -> float:
        """The relative distance of neighbouring numbers, at the outputs' coarsest dtype."""
        return max((torch.finfo(output.dtype).eps for output in self.outputs if is_inexact(output.dtype)), default=0.0)


class Cheat(list[Comparison]):
    """How a cheat's outputs compare with the expected ones, call by call, up to the first that fails."""

    def __init__(self, comparisons: Iterable[Comparison]) -> None:
        for comparison in comparisons:
            self.append(comparison)
            if not comparison.passes:
                break

    @property
    def passes(self) -> bool:
        return all(comparison.passes for comparison in self)

    def is_exact(self, last_place: float) -> bool:
        """Whether it passes, with no error beyond the last place."""
        return self.passes and max(comparison.error for comparison in self) <= last_place


class ReferenceCalls:
    """The task's reference with the weights of one seed, its float64 form `wide`, and its calls: on a few draws of the
    task's own inputs, then on other distributions of their values. Raises ProgramError if the reference fails."""

    def __init__(self, task: Task, seed: int) -> None:
        self.program = TaskProgram(task)
        self.seed = seed
        self._init_inputs = self.program.init_inputs(seed)
        self.model, self.wide = self.new_model(seed), self.new_model(seed).to(torch.float64)
        self._expectation = Expectation(self.program, self.wide)
        self.calls = [self._call(self.program.inputs(seed + index)) for index in range(1, 1 + _INPUT_SEEDS)]
        self.calls += self._other_values(self.calls[0].inputs)

    @property
    def has_no_wide_form(self) -> bool:
        """Whether the reference does not run in float64."""
        return self._expectation.upcast_fails

    def new_model(self, seed: int) -> nn.Module:
        """The reference with the weights of another seed."""
        return self.program.model(seed, self._init_inputs)

    def run(
        self, model: nn.Module, inputs: list[Any], dtype: torch.dtype | None = None, *, seed: int = 0
    ) -> list[Tensor]:
        """The tensors that a call on copies of the inputs returns. Floating-point inputs are converted to `dtype` if it
        is given. Calls draw the same random numbers unless `seed` differs. Raises ProgramError."""
        _, tensors = nesting.flatten(inputs)
        copies = [
            tensor.to(dtype or tensor.dtype, copy=True) if tensor.is_floating_point() else tensor.clone()
            for tensor in tensors
        ]
        try:
            with torch.no_grad(), self.program.seeded(self.seed + seed):
                _, outputs = nesting.flatten(model(*nesting.unflatten(inputs, copies)))
        except Exception as error:
            raise ProgramError(f"forward fails: {error!r}") from error
        if not outputs:
            raise ProgramError("the output holds no tensor")
        return outputs

    def call_of(self, model: nn.Module, call: Call) -> Call:
        """The same call of another model, which expects that model's own outputs."""
        outputs = self.run(model, call.inputs)
        return Call(call.inputs, outputs, outputs, call.own_errors, has_known_errors=False)

    def _call(self, inputs: list[Any]) -> Call:
        outputs = self.run(self.model, inputs)
        expected, own_errors, known = self._expectation.expect(inputs, self.seed, outputs)
        return Call(inputs, outputs, expected, own_errors, known)

    def _other_values(self, inputs: list[Any]) -> Iterator[Call]:
        """Calls on the other distributions of values by which the evaluator would judge a program, too."""
        for alternatives in distributions(inputs, torch.Generator().manual_seed(self.seed)):
            call = next(filter(None, (self._relied_on(values) for _, values in alternatives)), None)
            if call is not None:
                yield call

    def _relied_on(self, inputs: list[Any]) -> Call | None:
        """A call, if the reference can be relied on there."""
        try:
            call = self._call(inputs)
        except ProgramError:
            return None
        is_finite = all(bool(torch.isfinite(tensor).all()) for tensor in call.expected)
        return call if call.has_known_errors and is_finite else None


def differ_in_shape(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    """Whether two lists of outputs differ in number or shapes."""
    return [tensor.shape for tensor in first] != [tensor.shape for tensor in second]


def distance(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest relative error of the outputs; infinity if any is not finite."""
    if not all(bool(torch.isfinite(tensor).all()) for tensor in (*actual, *expected)):
        return float("inf")
    return max(max(relative_errors(*pair)) for pair in zip(actual, expected, strict=True))
