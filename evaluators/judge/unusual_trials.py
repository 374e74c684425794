"""Trials on inputs and weights that show errors which the task's own hide.

Nothing here may be required of a candidate if the reference cannot be relied on there.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from evaluators.host.device import Device
from evaluators.judge.checks import Checks
from evaluators.judge.expectation import Errors, Expectation
from evaluators.judge.inputs import distributions, rounding_alike
from evaluators.judge.pair import RunnerPair
from evaluators.judge.weights import Weights
from evaluators.tasks import TaskProgram

Calling = Callable[[list[Any], int], object]
"""Makes a call of both sides on inputs under a seed, whose outputs are those that the checks look at."""

_LARGER = 2.0  # times the weights that a task draws
_MOST_WORSE = 16.0  # times the reference's own error on its own inputs


@dataclass(frozen=True)
class _Unusual:
    """A trial on other inputs or weights than the task's own.

    `where`: the end of the message of its failure. `sound_only`: it counts only if the reference is about as exact
    there as on its own inputs. `check_bias`: errors must not all have one direction, either.
    """

    where: str
    sound_only: bool = False
    check_bias: bool = False


class UnusualTrials:
    """The trials of one candidate that are not on the task's own inputs."""

    def __init__(
        self, program: TaskProgram, pair: RunnerPair, device: Device, weights: Weights, checks: Checks
    ) -> None:
        self._program, self._pair, self._device = program, pair, device
        self._weights, self._checks = weights, checks
        self._usual_errors: Errors = []
        self._timeouts, self._count = (0.0, 0.0), 0

    def run(self, usual_errors: Errors, timeouts: tuple[float, float], count: int) -> None:
        """Makes one call of each side for each kind of input.

        `usual_errors`: the reference's own on the task's own inputs. `timeouts`: seconds for a call of the reference
        and of the candidate. `count`: how many other distributions of values are tried. Raises RunnerFailure for a
        wrong output.
        """
        self._usual_errors, self._timeouts, self._count = usual_errors, timeouts, count
        for kind in self._kinds(count):
            if kind is not None:
                self._try(*kind, self._call)
        self._try_larger_weights()

    def run_one(self, call: Calling) -> None:
        """One call of each side, on inputs of a kind that is drawn at random, by `call`: at a place among timed calls
        where no program can expect it. `run` must have come before. Raises RunnerFailure for a wrong output."""
        kinds = [kind for kind in self._kinds(self._count) if kind is not None]
        if kinds:
            self._try(*random.choice(kinds), call)

    def _inputs(self) -> list[Any]:
        return self._program.inputs(secrets.randbits(48))

    def _kinds(self, count: int) -> Iterator[tuple[list[Any], _Unusual] | None]:
        """The task's own inputs, changed in several ways. The last kind shows a lower precision whose rounding errors
        sums average away, or the tolerance for long sums lets pass: here its errors have one direction."""
        inputs = self._inputs()
        generator = torch.Generator(self._device.torch_device).manual_seed(secrets.randbits(48))
        for name, values in islice(distributions(inputs, generator), count):
            yield values, _Unusual(f" on inputs that are {name}")
        alike = rounding_alike(self._inputs())
        where = " on inputs whose rounding errors all have one direction"
        yield None if alike is None else (alike, _Unusual(where, sound_only=True, check_bias=True))

    def _try_larger_weights(self) -> None:
        """Shows that a program leaves out terms that are small under the task's own weights: here they are large."""
        if self._weights.are_new:
            self._checks.expectation = Expectation(self._program, self._weights.draw(_LARGER))
            where = " with matrices that are twice as large"
            self._try(self._inputs(), _Unusual(where, sound_only=True), self._call)

    def _call(self, values: list[Any], seed: int) -> None:
        self._pair.run_round([values], [seed], self._timeouts)

    def _try(self, values: list[Any], unusual: _Unusual, call: Calling) -> None:
        """One call of each side. It counts only if the reference can be relied on there."""
        seed = secrets.randbits(48)
        call(values, seed)
        expected, own, is_exact = self._checks.expect(values, seed)
        if is_exact and self._is_telling(unusual, expected, own):
            self._checks.check_values(expected, own, unusual.where, (values, seed))
            if unusual.check_bias:
                self._checks.check_bias(expected, unusual.where)

    def _is_telling(self, unusual: _Unusual, expected: list[Tensor], own: Errors) -> bool:
        """Whether the reference says anything about the candidate there.

        It does not if it overflows. For `sound_only` it does not, either, if an output holds nothing but zeros, or if
        its errors are much larger than on the task's own inputs.
        """
        if not all(bool(torch.isfinite(output).all()) for output in expected):
            return False
        if not unusual.sound_only:
            return True
        least = torch.finfo(torch.float32).eps
        for output, errors, usual in zip(expected, own, self._usual_errors, strict=True):
            if any(here > _MOST_WORSE * max(there, least) for here, there in zip(errors, usual, strict=True)):
                return False
            if not bool(output.any()):
                return False
        return True
