"""What the judge makes of outputs: each is compared, and what is found of all of them is remembered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


class Checks:
    """Of the candidate's outputs, in the judge's memory. `expectation` is of the weights that both sides have now.
    Whatever compares raises RunnerFailure for an output that is wrong."""

    def __init__(self, pair: RunnerPair, device: Device) -> None:
        self.expectation: Expectation
        self.made: list[Comparison] = []
        self.trials = 0
        self._pair, self._device = pair, device

    def correctness(self, deterministic: bool | None) -> Correctness | None:
        """The worst of them."""
        if not self.made:
            return None
        failing = [one for one in self.made if not one.passes]
        worst = failing[0] if failing else worst_of(self.made)
        return Correctness(self.trials, worst.error, worst.tolerance, deterministic)

    def exactly(
        self,
        expected: Sequence[Tensor],
        own: Errors,
        where: str = "",
        call: tuple[list[Any], int] | None = None,
        floor: float = ERROR_FLOOR,
    ) -> None:
        """`call`: the values and the seed that the outputs are of, where a second look at them is possible. `floor`:
        the least tolerance, in machine epsilons."""
        with self._pair.costs("compare"):
            found = self._compared(expected, own, floor=floor)
        if call is not None and not found.passes:
            found = self._second_look(found, *call, floor=floor)
        self._record(found, where)

    def unbiased(self, expected: Sequence[Tensor], where: str = "") -> None:
        """Raises RunnerFailure for outputs whose errors have one direction, as those of a lower precision do."""
        with self._pair.costs("compare"):
            sides = zip(self._pair.outputs(1), self._pair.outputs(0), expected, strict=True)
            found = worst_of([compare_bias(*one, one[1].dtype) for one in sides if is_inexact(one[1].dtype)])
        self._record(found, where)

    def is_close(self, expected: Sequence[Tensor], own: Errors, floor: float) -> bool:
        """Whether outputs would pass with another floor; nothing is remembered."""
        with self._pair.costs("compare"):
            return self._compared(expected, own, floor=floor).passes

    def _compared(
        self, expected: Sequence[Tensor], own: Errors, slot: int = 0, floor: float = ERROR_FLOOR
    ) -> Comparison:
        dtypes = [one.dtype for one in self._pair.outputs(0)]
        pairs = zip(self._pair.outputs(1, slot), expected, own, dtypes, strict=True)
        return worst_of([compare(*one, floor=floor) for one in pairs])

    def _second_look(
        self, found: Comparison, values: list[Any], seed: int, slot: int = 0, floor: float = ERROR_FLOOR
    ) -> Comparison:
        """What fails by little may be right on inputs for which rounding alone does so much."""
        if found.error > MAX_TOLERANCE:
            return found
        with self._pair.costs("second_look"):
            again = self.expectation.of_rounded(values, seed, self._pair.outputs(0, slot))
            self._device.synchronize()
            return self._compared(*again, slot, floor) if again else found

    def _record(self, found: Comparison, where: str = "") -> None:
        """Remembers how one output compares; raises RunnerFailure when it is wrong."""
        self.trials += 1
        self.made.append(found)
        if not found.passes:
            raise RunnerFailure(Outcome.WRONG, f"{found.reason or 'the output differs'}{where}")

    def timed(self, done: Round, own: Errors) -> None:
        """Compares every output of a round with the reference's at the task's dtype."""
        with self._pair.costs("compare"):
            outputs = [(self._pair.outputs(1, slot), self._pair.outputs(0, slot)) for slot in range(len(done.seeds))]
            dtypes = [one.dtype for one in self._pair.outputs(0)]
            found = compare_many(outputs, own, dtypes)
        for slot, one in enumerate(found):
            self._record(one if one.passes else self._second_look(one, done.values[slot], done.seeds[slot], slot))


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Equality in which NaN equals NaN."""
    return bool(((one == other) | ((one != one) & (other != other))).all())
