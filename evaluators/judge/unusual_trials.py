"""Trials on inputs and weights that show errors which the task's own hide.

Nothing here may be required of a candidate if the reference cannot be relied on there.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from evaluators.host.device import Device
from evaluators.judge.checks import Checks
from evaluators.judge.expectation import Errors, Expectation
from evaluators.judge.inputs import CallInputs, distributions, rounding_alike
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
        self,
        program: TaskProgram,
        inputs: CallInputs,
        pair: RunnerPair,
        device: Device,
        weights: Weights,
        checks: Checks,
    ) -> None:
        self._program, self._inputs, self._pair, self._device = program, inputs, pair, device
        self._weights, self._checks = weights, checks
        self._usual_errors: Errors = []

    def run(self, usual_errors: Errors, timeouts: tuple[float, float]) -> None:
        """One call of each side on inputs that round alike, and one with larger weights. If the reference can be relied
        on in the first, all inputs lean from then on.

        `usual_errors`: the reference's own on the task's own inputs. `timeouts`: seconds for a call of the reference
        and of the candidate. Raises RunnerFailure for a wrong output.
        """
        self._usual_errors = usual_errors

        def call(values: list[Any], seed: int) -> None:
            self._pair.run_round([values], [seed], timeouts)

        # No place would hide these inputs: they are easily told from others. Those of timed calls take over from them.
        self._inputs.lean = self._try_inputs_that_round_alike(call)
        if self._weights.are_new:
            # Shows that a program leaves out terms that are small under the task's own weights: here they are large.
            self._checks.expectation = Expectation(self._program, self._weights.draw(_LARGER))
            unusual = _Unusual(" with matrices that are twice as large", sound_only=True)
            self._try(self._inputs.draw(), unusual, call)

    def kinds(self, count: int) -> list[Callable[[Calling], None]]:
        """For each kind of unusual inputs a function that tries it: normal values for tensors that are never negative,
        at most `count` further distributions of values, and inputs like those of all timed calls. In random order, for
        places among timed calls where no program can expect them: what a program leaves out of timed calls alone it
        leaves out of these. They raise RunnerFailure for a wrong output."""
        tries: list[Callable[[Calling], None]] = [partial(self._try_distribution, index) for index in range(1 + count)]
        if self._inputs.lean:
            tries.append(self._try_inputs_that_lean)
        return random.sample(tries, len(tries))

    def _try_distribution(self, index: int, call: Calling) -> None:
        generator = torch.Generator(self._device.torch_device).manual_seed(secrets.randbits(48))
        for alternatives in islice(distributions(self._inputs.draw(), generator), index, index + 1):
            for name, values in alternatives:
                if self._try(values, _Unusual(f" on inputs that are {name}"), call):
                    return

    def _try_inputs_that_round_alike(self, call: Calling) -> bool:
        """Shows a lower precision whose rounding errors sums average away, or the tolerance for long sums lets pass:
        here its errors have one direction. Returns whether the reference can be relied on."""
        values = rounding_alike(self._inputs.draw())
        where = " on inputs whose rounding errors all have one direction"
        return values is not None and self._try(values, _Unusual(where, sound_only=True, check_bias=True), call)

    def _try_inputs_that_lean(self, call: Calling) -> None:
        """Shows a lower precision that begins once calls are timed, on inputs that only look like theirs."""
        where = " on inputs most of whose rounding errors have one direction"
        self._try(self._inputs.draw(), _Unusual(where, sound_only=True, check_bias=True), call)

    def _try(self, values: list[Any], unusual: _Unusual, call: Calling) -> bool:
        """One call of each side. It counts only if the reference can be relied on there; returns whether it did."""
        seed = secrets.randbits(48)
        call(values, seed)
        expected, own, is_exact = self._checks.expect(values, seed)
        if not (is_exact and self._is_telling(unusual, expected, own)):
            return False
        self._checks.check_values(expected, own, unusual.where, (values, seed))
        if unusual.check_bias:
            self._checks.check_bias(expected, unusual.where)
        return True

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
