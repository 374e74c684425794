"""Compares the candidate's outputs with the expected ones, and remembers every comparison for the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from evaluators.failures import RunnerFailure
from evaluators.host.device import Device
from evaluators.judge.correctness import (
    ERROR_FLOOR,
    MAX_TOLERANCE,
    Comparison,
    compare,
    compare_bias,
    compare_many,
    is_inexact,
    worst_of,
)
from evaluators.judge.expectation import Errors, Expectation
from evaluators.judge.pair import Round, RunnerPair
from evaluators.records import Correctness, Outcome

_FEW_TERMS, _CLOSE_FLOOR = 32, 16.0  # of few numbers only few rounding errors add up; the floor in machine epsilons


class Checks:
    """The comparisons of one candidate's outputs, which are read from the judge's memory.

    `expectation` belongs to the weights that both sides have now. Methods that check raise RunnerFailure for a wrong
    output. `where` ends their message: it says on which inputs.
    """

    def __init__(self, pair: RunnerPair, device: Device) -> None:
        self.expectation: Expectation
        self.comparisons: list[Comparison] = []
        self._trials = 0
        self._pair, self._device = pair, device
        self._has_few_terms: bool | None = None  # until somebody asks

    def correctness(self, deterministic: bool | None) -> Correctness | None:
        """The first comparison that failed, or else the one nearest to failing; None before any."""
        if not self.comparisons:
            return None
        failing = [comparison for comparison in self.comparisons if not comparison.passes]
        worst = failing[0] if failing else worst_of(self.comparisons)
        return Correctness(self._trials, worst.error, worst.tolerance, deterministic)

    def expect(self, values: list[Any], seed: int) -> tuple[list[Tensor], Errors, bool]:
        """The expected outputs of a call that both sides have just made, the reference's own errors, and whether these
        were measured (`Expectation.expect`)."""
        with self._pair.costs("float64_reference"):
            expected = self.expectation.expect(values, seed, self._pair.outputs(0))
            self._device.synchronize()
        return expected

    def check_values(
        self,
        expected: Sequence[Tensor],
        own: Errors,
        where: str = "",
        call: tuple[list[Any], int] | None = None,
    ) -> None:
        """Compares the candidate's outputs with `expected`.

        `own`: the reference's own errors. `call`: the inputs and the seed of the call, if a failure may be compared
        once more with regard to the rounding of these inputs. If an output depends on few numbers, it must be closer.
        """
        with self._pair.costs("compare"):
            comparison, floor = self._compare(expected, own), ERROR_FLOOR
        if call is not None:
            closer = partial(self._compare, expected, own, floor=_CLOSE_FLOOR)
            comparison, floor = self._demanded(comparison, closer, *call, _CLOSE_FLOOR)
            if not comparison.passes:
                comparison = self._compare_again(comparison, *call, floor=floor)
        self._record(comparison, where)

    def check_bias(self, expected: Sequence[Tensor], where: str = "") -> None:
        """Checks that errors do not all have one direction, as those of a lower precision have."""
        with self._pair.costs("compare"):
            outputs = zip(self._pair.outputs(1), self._pair.outputs(0), expected, strict=True)
            comparisons = [
                compare_bias(actual, reference, exact, reference.dtype)
                for actual, reference, exact in outputs
                if is_inexact(reference.dtype)
            ]
            comparison = worst_of(comparisons)
        self._record(comparison, where)

    def check_round(self, done: Round, own: Errors) -> None:
        """Compares every output of a round with the reference's at the task's dtype."""
        with self._pair.costs("compare"):
            outputs = [(self._pair.outputs(1, call), self._pair.outputs(0, call)) for call in range(len(done.seeds))]
            dtypes = [output.dtype for output in self._pair.outputs(0)]
            comparisons = compare_many(outputs, own, dtypes)
        close = 2.0 * _CLOSE_FLOOR  # both sides have errors here
        for call, (comparison, values, seed) in enumerate(zip(comparisons, done.values, done.seeds, strict=True)):
            closer = partial(_first_of_many, outputs[call : call + 1], own, dtypes, close)
            comparison, floor = self._demanded(comparison, closer, values, seed, close)
            if not comparison.passes:
                comparison = self._compare_again(comparison, values, seed, call, floor)
            self._record(comparison)

    def _demanded(
        self, comparison: Comparison, closer: Callable[[], Comparison], values: list[Any], seed: int, floor: float
    ) -> tuple[Comparison, float]:
        """The comparison of an output that counts, and its floor in machine epsilons. If outputs depend on few numbers,
        it is the `closer` one, whose floor is given: no sum explains an error of many roundings then."""
        dtypes = [output.dtype for output in self._pair.outputs(0) if is_inexact(output.dtype)]
        least = floor * min((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)
        if least < comparison.error <= MAX_TOLERANCE:
            with self._pair.costs("compare"):
                closely = closer()
            if not closely.passes and self._depends_on_few(values, seed):
                return closely, floor
        return comparison, ERROR_FLOOR

    def _depends_on_few(self, values: list[Any], seed: int) -> bool:
        """Whether outputs depend on few numbers. It is found out once, on these inputs."""
        if self._has_few_terms is None:
            with self._pair.costs("terms"):
                terms = self.expectation.count_terms(values, seed)
            self._has_few_terms = terms is not None and terms <= _FEW_TERMS
        return self._has_few_terms

    def _compare(
        self, expected: Sequence[Tensor], own: Errors, call: int = 0, floor: float = ERROR_FLOOR
    ) -> Comparison:
        dtypes = [output.dtype for output in self._pair.outputs(0)]
        outputs = zip(self._pair.outputs(1, call), expected, own, dtypes, strict=True)
        return worst_of([compare(*output, floor=floor) for output in outputs])

    def _compare_again(
        self, failed: Comparison, values: list[Any], seed: int, call: int = 0, floor: float = ERROR_FLOOR
    ) -> Comparison:
        """Compares an output that fails by little with a tolerance that counts the rounding of its inputs.

        There are inputs for which rounding alone explains such an error (`Expectation.expect_rounded`).
        """
        if failed.error > MAX_TOLERANCE:
            return failed
        with self._pair.costs("second_look"):
            again = self.expectation.expect_rounded(values, seed, self._pair.outputs(0, call))
            self._device.synchronize()
            return self._compare(*again, call, floor) if again else failed

    def _record(self, comparison: Comparison, where: str = "") -> None:
        """Remembers how one output compares. Raises RunnerFailure if it is wrong."""
        self._trials += 1
        self.comparisons.append(comparison)
        if not comparison.passes:
            raise RunnerFailure(Outcome.WRONG, f"{comparison.reason or 'the output differs'}{where}")


def _first_of_many(*arguments: Any) -> Comparison:
    return compare_many(*arguments)[0]


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal, NaN being equal to NaN."""
    return bool(((one == other) | ((one != one) & (other != other))).all())
