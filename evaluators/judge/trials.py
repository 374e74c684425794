"""The calls that are checked and not timed, before any that is: on the task's own inputs, and on others that show what
these do not exercise."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from evaluators.guard.floor import LEAST_SECONDS
from evaluators.host.device import Device
from evaluators.judge.checks import Checks, same_bits
from evaluators.judge.expectation import Errors, Expectation
from evaluators.judge.floor import bytes_written
from evaluators.judge.inputs import distributions, rounding_alike
from evaluators.judge.pair import Round, RunnerPair
from evaluators.judge.weights import Weights
from evaluators.tasks import TaskProgram
from evaluators.timing.presets import Preset

_LARGER = 2.0  # times the weights that a task draws
_MOST_WORSE = 16.0  # times the reference's own error on its own inputs
_FEW_TERMS, _CLOSE_FLOOR = 32, 16.0  # in machine epsilons: of few numbers only few roundings add up
_AFTER_NEW_WEIGHTS = " (after its weights were changed, as by load_state_dict)"


@dataclass(frozen=True)
class CallLimits:
    """Seconds that the steps of one runner may take."""

    start: float
    call_factor: float
    call: float


@dataclass(frozen=True)
class _Unusual:
    """A trial on other inputs or weights than a task's own: how its failure reads, whether it counts only where the
    reference is about as exact as on its own inputs, and whether the errors may have no common direction."""

    where: str
    sound_only: bool = False
    unbiased: bool = False


class Trials:
    """Of one candidate. `run` raises RunnerFailure when an output is wrong, and leaves behind what it learned.

    `own_errors`: the reference's, on the task's own inputs. `deterministic`: whether the candidate gives the same bits
    twice (None where the reference does not, or nothing was tried). `written`: bytes of the output that a call must
    write. `reference_seconds`: of one call; `candidate_seconds`: of the shortest, since the first may compile."""

    def __init__(
        self,
        program: TaskProgram,
        pair: RunnerPair,
        device: Device,
        weights: Weights,
        checks: Checks,
        preset: Preset,
        limits: CallLimits,
    ) -> None:
        self.own_errors: Errors = []
        self.deterministic: bool | None = None
        self.written = 0
        self.reference_seconds, self.candidate_seconds = limits.start, math.inf
        self._program, self._pair, self._device = program, pair, device
        self._weights, self._checks, self._preset, self._limits = weights, checks, preset, limits
        self._before: list[Tensor] | None = None

    def timeouts(self, calls: int) -> tuple[float, float]:
        """Seconds that a burst of the reference, and of the candidate, may take."""
        one = 1.0 + calls * min(self._limits.call, max(self._limits.call_factor * self.reference_seconds, 1.0))
        return one + self._limits.call, one

    def run(self) -> None:
        """Compares outputs with a float64 reference on fresh inputs, on the first of them twice, and on what shows
        more. The first call may compile, so it may take long."""
        start, call = self._limits.start, self._limits.call
        for trial in range(self._preset.trials):
            self._trial(self._inputs(), (start + call, start) if trial == 0 else self.timeouts(1))
        if self._preset.distributions:
            with self._pair.costs("distributions"):
                self._try_distributions()
                self._try_inputs_that_round_alike()
                self._try_larger_weights()

    def _inputs(self) -> list[Any]:
        return self._program.inputs(secrets.randbits(48))

    def _generator(self) -> torch.Generator:
        return torch.Generator(self._device.torch_device).manual_seed(secrets.randbits(48))

    def _try_distributions(self) -> None:
        others = distributions(self._inputs(), self._generator())
        for name, values in islice(others, self._preset.distributions):
            self._trial(values, self.timeouts(1), _Unusual(f" on inputs that are {name}"))

    def _try_inputs_that_round_alike(self) -> None:
        """A lower precision that sums average away, or that the tolerance for long sums lets through, is biased now."""
        values = rounding_alike(self._inputs())
        if values is not None:
            where = _Unusual(" on inputs whose rounding errors all have one direction", sound_only=True, unbiased=True)
            self._trial(values, self.timeouts(1), where)

    def _try_larger_weights(self) -> None:
        """What was left out because the task's own weights make it small is not small now."""
        if self._weights.are_new:
            self._checks.expectation = Expectation(self._program, self._weights.draw(_LARGER))
            where = _Unusual(" with matrices that are twice as large", sound_only=True)
            self._trial(self._inputs(), self.timeouts(1), where)

    def _trial(self, values: list[Any], timeouts: tuple[float, float], unusual: _Unusual | None = None) -> None:
        """One call on each side. On the task's own inputs the reference's errors are learned from it; `unusual` ones
        count only where the reference can be relied on."""
        seed = secrets.randbits(48)
        done = self._pair.round([values], [seed], timeouts)
        with self._pair.costs("float64_reference"):
            expected, own, known = self._checks.expectation.of(values, seed, self._pair.outputs(0))
            self._device.synchronize()
        if unusual is not None:
            if known and self._is_telling(unusual, expected, own):
                self._checks.exactly(expected, own, unusual.where, (values, seed))
                if unusual.unbiased:
                    self._checks.unbiased(expected, unusual.where)
            return
        self._took(done)
        first = self._weights.are_new and not self._checks.made
        self._checks.exactly(expected, own, _AFTER_NEW_WEIGHTS if first else "", (values, seed))
        self._compare_closely(expected, own, values, seed)
        before = self.own_errors or own
        self.own_errors = [(max(a[0], b[0]), max(a[1], b[1])) for a, b in zip(own, before, strict=True)]
        self._measure_output(values)
        if self.deterministic is None:
            self._repeat(values, seed, timeouts)

    def _took(self, done: Round) -> None:
        """Takes the seconds of one call in: of the candidate's what it says that it took, but no more than it can."""
        self.reference_seconds = done.reference.own[0]
        self.candidate_seconds = min(self.candidate_seconds, done.candidate.own[0], done.candidate.judged)

    def _compare_closely(self, expected: list[Tensor], own: Errors, values: list[Any], seed: int) -> None:
        """Where an output depends on few numbers, no sum explains an error of many roundings."""
        if self._checks.is_close(expected, own, _CLOSE_FLOOR):
            return
        with self._pair.costs("terms"):
            terms = self._checks.expectation.terms(values, seed)
        if terms is not None and terms <= _FEW_TERMS:
            self._checks.exactly(expected, own, "", (values, seed), floor=_CLOSE_FLOOR)

    def _is_telling(self, unusual: _Unusual, expected: list[Tensor], own: Errors) -> bool:
        """Whether the reference says anything of the candidate there: not where it overflows, nor, for those that ask
        for it, where it gives nothing but zeros or small differences grow more than on the task's own inputs."""
        if not all(bool(torch.isfinite(one).all()) for one in expected):
            return False
        if not unusual.sound_only:
            return True
        for output, errors, known in zip(expected, own, self.own_errors, strict=True):
            least = torch.finfo(torch.float32).eps
            if any(one > _MOST_WORSE * max(other, least) for one, other in zip(errors, known, strict=True)):
                return False
            if not bool(output.any()):
                return False
        return True

    def _measure_output(self, values: list[Any]) -> None:
        """How much of the output is new from the first inputs to the second, where it is large enough to tell."""
        outputs = self._pair.outputs(0)
        if self._device.floor_seconds(max(one.numel() * one.dtype.itemsize for one in outputs)) < LEAST_SECONDS:
            return
        with self._pair.costs("floor"):
            if self._before is None:
                self._before = [one.clone() for one in outputs]
            elif self._before:
                self.written, self._before = bytes_written(self._before, outputs, values), []

    def _repeat(self, values: list[Any], seed: int, timeouts: tuple[float, float]) -> None:
        """The same call again: whether the candidate's bits are the same, unless the reference keeps a state."""
        with self._pair.costs("determinism"):
            before = [[one.clone() for one in self._pair.outputs(which)] for which in (0, 1)]
            self._took(self._pair.round([values], [seed], timeouts))
            same = [all(map(same_bits, one, self._pair.outputs(which))) for which, one in enumerate(before)]
            self.deterministic = same[1] if same[0] else None
            if same[0] and not same[1]:
                where = " from one call to the next on the same inputs"
                self._checks.exactly(before[1], self.own_errors, where)
