"""The trusted side: owns seeds, inputs, expected outputs, the clock and the verdict on one candidate.

The candidate's own clock is evidence, never a result: a pair's ratio is the reference's time over the candidate's, both
by the judge's clock less the overhead of a call, which the reference's own (trusted) clock shows. Every call, timed or
not, gets inputs that nobody has seen, and its output is checked.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from evaluators import tree
from evaluators.correctness import Comparison, compare, explains, is_inexact, relative_errors, unknown_errors, worst_of
from evaluators.device import Device
from evaluators.records import Correctness, Estimate, Finding, Outcome, Timing
from evaluators.runner_handle import InfraError, RunnerFailure, RunnerHandle
from evaluators.tasks import TaskProgram
from evaluators.timing import Preset, median_estimate

_log = logging.getLogger(__name__)
_BURST_SECONDS = 0.004  # a burst repeats short calls until the pipe's jitter is small against it
_MAX_BURST = 8
_DISAGREEMENT_SHARE = 0.25  # of the candidate's time hidden from its own clock: worth a finding
_DISAGREEMENT_SECONDS = 2e-4


@dataclass(frozen=True)
class CallLimits:
    """Seconds that the steps of one runner may take."""

    start: float
    call_factor: float
    call: float


@dataclass
class Side:
    """One runner with the judge's views of its inputs and outputs, by slot."""

    runner: RunnerHandle
    inputs: list[list[Tensor]] = field(default_factory=list)
    outputs: list[list[Tensor]] = field(default_factory=list)


@dataclass(frozen=True)
class Burst:
    """Seconds of some calls in a row: by the judge's clock, and by the runner's."""

    judged: float
    own: float
    calls: int


@dataclass(frozen=True)
class Round:
    """One burst of each side on the same inputs, each call under one of the seeds."""

    reference: Burst
    candidate: Burst
    inputs: list[list[Any]]
    seeds: list[int]


@dataclass(frozen=True)
class Judgement:
    """What the judge found out about one candidate."""

    outcome: Outcome
    message: str
    correctness: Correctness | None = None
    speedup: Estimate | None = None
    timing: Timing | None = None
    findings: tuple[Finding, ...] = ()
    cost: dict[str, float] = field(default_factory=dict)


class Judge:
    """Judges one candidate's runner against the reference's, both freshly forked."""

    def __init__(
        self,
        program: TaskProgram,
        device: Device,
        reference: RunnerHandle,
        candidate: RunnerHandle,
        preset: Preset,
        limits: CallLimits,
    ) -> None:
        self.program = program
        self.device = device
        self.reference = Side(reference)
        self.candidate = Side(candidate)
        self.preset = preset
        self.limits = limits
        self.exact: nn.Module | None = None
        self.output_spec: tree.Spec = {}
        self.own_errors: list[tuple[float, float]] = []
        self.comparisons: list[Comparison] = []
        self.trials = 0
        self.reference_seconds = limits.start
        self.cost: dict[str, float] = {}

    def judge(self, source: str) -> Judgement:
        """Loads both programs, checks the candidate's outputs, then times the two in turns."""
        try:
            self._stage("load", lambda: self._load(source))
            self._stage("check", self._check)
            speedup, timing, findings = self._stage("time", self._time)
        except RunnerFailure as failure:
            return Judgement(failure.outcome, failure.message, self._correctness(), cost=self.cost)
        return Judgement(Outcome.OK, "", self._correctness(), speedup, timing, findings, self.cost)

    def _stage(self, name: str, work: Any) -> Any:
        start = time.perf_counter()
        try:
            return work()
        finally:
            self.cost[name] = time.perf_counter() - start

    def _correctness(self) -> Correctness | None:
        if not self.comparisons:
            return None
        failing = [one for one in self.comparisons if not one.passes]
        worst = failing[0] if failing else worst_of(self.comparisons)
        return Correctness(self.trials, worst.error, worst.tolerance)

    def _load(self, source: str) -> None:
        """Constructs both models under one secret seed; then gives both new weights where their states match."""
        seed = secrets.randbits(48)
        init_inputs = self.program.init_inputs(seed)
        state = self._of_reference(
            lambda: self.reference.runner.load(self.program.source, "Model", seed, init_inputs, self.limits.start)
        )
        theirs = self.candidate.runner.load(source, "ModelNew", seed, init_inputs, self.limits.start)
        same_state = sorted(map(repr, state)) == sorted(map(repr, theirs))
        model = self.program.model(seed + 1 if same_state else seed, init_inputs)
        if same_state and state:
            for side in (self.reference, self.candidate):
                side.runner.set_state(model.state_dict(), self.limits.start)
        self.exact = model.to(torch.float64)
        example = self.program.inputs(secrets.randbits(48))
        for side in (self.reference, self.candidate):
            side.inputs = side.runner.bind_inputs(example, _MAX_BURST, self.limits.start)
        # Not the runner's model, whose own state (an RNN's hidden one) must have seen what the candidate's has.
        self.output_spec = self.program.output_spec(seed, init_inputs, example)
        for side in (self.reference, self.candidate):
            side.outputs = side.runner.bind_outputs(self.output_spec, _MAX_BURST, self.limits.start)

    def _of_reference(self, work: Any) -> Any:
        """The reference is ours: when it fails, that is no verdict on the candidate."""
        try:
            return work()
        except RunnerFailure as failure:
            raise InfraError(f"task {self.program.task.id}: the reference failed: {failure.message}") from failure

    def _write(self, side: Side, inputs: Sequence[list[Any]]) -> None:
        """Puts fresh values at the same addresses, and poison where the outputs will stand."""
        for slot, values in enumerate(inputs):
            _, tensors = tree.flatten(values)
            for target, value in zip(side.inputs[slot], tensors, strict=True):
                if target.shape != value.shape or target.dtype != value.dtype:
                    raise InfraError(f"task {self.program.task.id}: get_inputs changes its shapes or dtypes")
                target.copy_(value)
            for output in side.outputs[slot] if side.outputs else ():
                _poison(output)

    def _call(self, side: Side, seeds: list[int], timeout: float) -> Burst:
        seconds, mismatch = side.runner.call(seeds, timeout)
        if mismatch is not None:
            message = _describe_mismatch(self.output_spec, mismatch)
            outcome = Outcome.WRONG if side is self.candidate else Outcome.INFRA
            raise RunnerFailure(outcome, message)
        return Burst(side.runner.seconds, sum(seconds), len(seeds))

    def _timeout(self, calls: int) -> float:
        return 1.0 + calls * min(self.limits.call, max(self.limits.call_factor * self.reference_seconds, 1.0))

    def _round(self, calls: int, timeout: float, candidate_first: bool) -> Round:
        """One burst of both sides on the same fresh inputs."""
        inputs = [self.program.inputs(secrets.randbits(48)) for _ in range(calls)]
        seeds = [secrets.randbits(48) for _ in range(calls)]
        for side in (self.reference, self.candidate):
            self._write(side, inputs)
        bursts: dict[int, Burst] = {}
        for ours in (False, True) if candidate_first else (True, False):
            if ours:
                bursts[0] = self._of_reference(lambda: self._call(self.reference, seeds, timeout + self.limits.call))
            else:
                bursts[1] = self._call(self.candidate, seeds, timeout)
        self._check_inputs_untouched(inputs)
        return Round(bursts[0], bursts[1], inputs, seeds)

    def _check_inputs_untouched(self, inputs: list[list[Any]]) -> None:
        for slot in range(len(inputs)):
            pairs = zip(self.candidate.inputs[slot], self.reference.inputs[slot], strict=True)
            if not all(_same_bits(one, other) for one, other in pairs):
                raise RunnerFailure(Outcome.WRONG, "the program changes its inputs in place")

    def _check(self) -> None:
        """Compares outputs with a float64 reference on fresh inputs. The first call may compile, so it may take
        long."""
        for trial in range(self.preset.trials):
            timeout = self.limits.start if trial == 0 else self._timeout(1)
            done = self._round(1, timeout, candidate_first=False)
            self.reference_seconds = done.reference.own
            expected, own = self._expected(done.inputs[0], done.seeds[0])
            self._compare(self.candidate.outputs[0], expected, own)
            known = self.own_errors or own
            self.own_errors = [(max(a[0], b[0]), max(a[1], b[1])) for a, b in zip(own, known, strict=True)]

    def _expected(self, inputs: list[Any], seed: int) -> tuple[list[Tensor], list[tuple[float, float]]]:
        """What the outputs should be, and the reference's own errors: against float64 where that explains the
        reference's output, else (integers, overflow, dropout that draws otherwise) the reference's output itself."""
        at_dtype = self.reference.outputs[0]
        exact = self._exact_output(inputs, seed) or at_dtype
        expected, errors = [], []
        for given, wide in zip(at_dtype, exact, strict=True):
            own = relative_errors(given, wide)
            known = wide is not given and is_inexact(given.dtype) and explains(own)
            expected.append(wide if known else given)
            errors.append(own if known else unknown_errors(given.dtype))
        return expected, errors

    def _exact_output(self, inputs: list[Any], seed: int) -> list[Tensor] | None:
        """The reference's output in float64, or None for a program that cannot be upcast."""
        _, tensors = tree.flatten(inputs)
        wide = [one.to(torch.float64) if one.is_floating_point() else one.clone() for one in tensors]
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                assert self.exact is not None
                torch.default_generator.manual_seed(seed)
                _, outputs = tree.flatten(self.exact(*tree.unflatten(inputs, wide)))
        except Exception:  # noqa: BLE001  (a program may refuse another dtype in any way; it is then compared at its own)
            _log.debug("task %s: not in float64", self.program.task.id, exc_info=True)
            return None
        shapes = [one.shape for one in self.reference.outputs[0]]
        return outputs if [one.shape for one in outputs] == shapes else None

    def _compare(
        self, actual: Sequence[Tensor], expected: Sequence[Tensor], own: Sequence[tuple[float, float]]
    ) -> None:
        """Records how one output compares; raises RunnerFailure when it is wrong."""
        dtypes = [one.dtype for one in self.reference.outputs[0]]
        found = worst_of([compare(*one) for one in zip(actual, expected, own, dtypes, strict=True)])
        self.trials += 1
        self.comparisons.append(found)
        if not found.passes:
            raise RunnerFailure(Outcome.WRONG, found.reason or "the output differs")

    def _time(self) -> tuple[Estimate, Timing, tuple[Finding, ...]]:
        """Bursts of both sides in random order until the preset's criteria are met; every output checked."""
        # A timed output is compared with the reference's at the task's dtype: both carry rounding errors.
        own = [(2 * rms, 2 * largest) for rms, largest in self.own_errors]
        calls = max(1, min(_MAX_BURST, round(_BURST_SECONDS / max(self.reference_seconds, 1e-6))))
        pairs: list[tuple[Burst, Burst]] = []
        start, warmup, reason = time.perf_counter(), self.preset.warmup, None
        while reason is None:
            done = self._round(calls, self._timeout(calls), random.random() < 0.5)
            for slot in range(calls):
                self._compare(self.candidate.outputs[slot], self.reference.outputs[slot], own)
            if warmup > 0:
                warmup -= 1
                start = time.perf_counter()
                continue
            pairs.append((done.reference, done.candidate))
            reason = self.preset.stop(self._ratios(pairs), time.perf_counter() - start)
        return self._estimates(pairs, reason)

    def _ratios(self, pairs: list[tuple[Burst, Burst]]) -> list[float]:
        # Both by the judge's clock: what slows the machine for a while must be able to hit both sides alike.
        overhead = _overhead(pairs)
        return [_without(reference, overhead) / _without(candidate, overhead) for reference, candidate in pairs]

    def _estimates(self, pairs: list[tuple[Burst, Burst]], reason: str) -> tuple[Estimate, Timing, tuple[Finding, ...]]:
        overhead = _overhead(pairs)
        hidden = [candidate.judged - overhead - candidate.own for _, candidate in pairs]
        judged = [_without(candidate, overhead) for _, candidate in pairs]
        shares = median_estimate([one / total for one, total in zip(hidden, judged, strict=True)])
        timing = Timing(
            candidate_seconds=median_estimate([one / pairs[0][1].calls for one in judged]),
            reference_seconds=median_estimate([reference.own / reference.calls for reference, _ in pairs]),
            pairs=len(pairs),
            stopped_by=reason,
            clock_disagreement=shares.value,
        )
        findings: tuple[Finding, ...] = ()
        if shares.low > _DISAGREEMENT_SHARE and median(hidden) > _DISAGREEMENT_SECONDS:
            message = f"{shares.value:.0%} of the time by the judge's clock is missing from the program's own"
            findings = (Finding("clocks", "suspect", message),)
        return median_estimate(self._ratios(pairs)), timing, findings


def _overhead(pairs: Sequence[tuple[Burst, Burst]]) -> float:
    """Seconds of a burst outside its calls, which the trusted side shows. The lower quartile: other load on the machine
    only ever adds, and what is taken off too much makes a candidate fast."""
    return float(np.quantile([reference.judged - reference.own for reference, _ in pairs], 0.25))


def _without(burst: Burst, overhead: float) -> float:
    """Seconds of a burst's calls. A runner's own clock can make it slower here, never faster: without that bound, a
    call much shorter than the overhead would be the difference of two noisy numbers."""
    return max(burst.judged - overhead, min(burst.own, burst.judged), 0.01 * burst.judged)


def _describe_mismatch(expected: tree.Spec, actual: tree.Spec) -> str:
    try:
        wanted, given = tree.tensor_specs(expected), tree.tensor_specs(actual)
        if len(wanted) == len(given) == 1:
            expected, actual = wanted[0], given[0]
        return tree.difference(expected, actual) or "the output has another form than the reference's"
    except (KeyError, TypeError, AttributeError, ValueError):
        return "the output has another form than the reference's, and no description"


def _poison(tensor: Tensor) -> None:
    """Fills an output buffer with values that no program computes by accident."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype is torch.bool:
        tensor.copy_(torch.rand(tensor.shape) < 0.5)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min + 7)


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Equality in which NaN equals NaN. Both sides got the same values, so any difference was made by a program."""
    if torch.equal(one, other):
        return True
    return bool(((one == other) | ((one != one) & (other != other))).all())
