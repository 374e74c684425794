"""The trusted side: owns seeds, inputs, expected outputs, the clock and the verdict on one candidate.

The candidate's own clock is checked against the judge's, never simply believed (`evaluators.timing.clocks`). Every
call, timed or not, gets inputs that nobody has seen, and its output is checked.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from evaluators.failures import InfraError, RunnerFailure
from evaluators.guard import Evidence, examine
from evaluators.guard.bursts import takes_longer_alone
from evaluators.host.device import Device
from evaluators.host.runner_handle import RunnerHandle
from evaluators.judge.calibration import calibrate
from evaluators.judge.checks import Checks
from evaluators.judge.expectation import Errors, Expectation
from evaluators.judge.pair import RunnerPair, of_reference
from evaluators.judge.trials import CallLimits, Trials
from evaluators.judge.weights import Weights
from evaluators.judge.witness import trace_of
from evaluators.records import ClockSample, Correctness, Estimate, Finding, Outcome, Timing, Trace
from evaluators.shared import nesting
from evaluators.tasks import ProgramError, TaskProgram
from evaluators.tasks.shapes import shape_variants
from evaluators.timing.clocks import Hidden, Pair, waited_more
from evaluators.timing.estimates import calibrated_estimate, median_estimate
from evaluators.timing.paper import paper_estimate
from evaluators.timing.presets import Preset

_SHAPE_SECONDS, _TRACE_SECONDS = 3.0, 5.0
_CALLS_ALONE = 11
_MUCH_SLOWER = 10.0  # times the reference: bursts of what takes longer are shorter, since nobody asks how slow it is


@dataclass(frozen=True)
class Judgement:
    """What the judge found out about one candidate."""

    outcome: Outcome
    message: str
    correctness: Correctness | None = None
    speedup: Estimate | None = None
    timing: Timing | None = None
    findings: tuple[Finding, ...] = ()
    trace: Trace | None = None
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
        *,
        device_memory_bytes: int = 0,
        require_shapes: bool = False,
    ) -> None:
        """`require_shapes`: failing at another shape is wrong, not only noted."""
        self.program = program
        self.device = device
        self.pair = RunnerPair(device, reference, candidate, program.task.id)
        self.preset = preset
        self.limits = limits
        self.device_memory_bytes = device_memory_bytes
        self.require_shapes = require_shapes
        self.weights = Weights(self.pair, program, device, limits.start)
        self.checks = Checks(self.pair, device)
        self.trials = Trials(program, self.pair, device, self.weights, self.checks, preset, limits)
        self.hidden: Hidden
        self.waited: Estimate
        self.alone: tuple[Estimate, Estimate] | None = None
        self.init_inputs: list[Any] = []
        self.findings: list[Finding] = []
        self.memory_before = 0
        self.offset, self.offsets = 0.0, [0.0]  # of the candidate's process against the reference's, in seconds a call
        self.stages: dict[str, float] = {}

    def judge(self, source: str, *, closer: bool = True) -> Judgement:
        """Loads both programs, checks the candidate's outputs, times the two in turns, then looks `closer`."""
        speedup, timing, trace = None, None, None
        trials = self.trials
        try:
            self._stage("load", lambda: self._load(source))
            self._stage("check", trials.run)
            speedup, timing = self._stage("time", self._time)
            self._check_memory(self.memory_before)
            if closer:
                trace = self._stage("trace", lambda: trace_of(self.pair.runners[1], source, _TRACE_SECONDS))
            self._stage("guard", lambda: self._examine(source, timing, trace))
            if closer:
                self._stage("shapes", self._try_shapes)
        except RunnerFailure as failure:
            return Judgement(
                failure.outcome, failure.message, self.checks.correctness(trials.deterministic), cost=self._cost()
            )
        findings = tuple(self.findings)
        return Judgement(
            Outcome.OK,
            "",
            self.checks.correctness(self.trials.deterministic),
            speedup,
            timing,
            findings,
            trace,
            self._cost(),
        )

    def _examine(self, source: str, timing: Timing, trace: Trace | None) -> None:
        """Puts what the guard makes of the evidence to the findings."""
        reference, candidate = (runner.process.census() for runner in self.pair.runners)
        (_, expected), (replaced, flags) = (runner.integrity(self.limits.call) for runner in self.pair.runners)
        self.findings += examine(
            Evidence(
                source=source,
                timing=timing,
                hidden=self.hidden,
                together=(timing.reference_seconds, timing.candidate_seconds),
                alone=self.alone,
                alone_seconds=self.device.clock.alone_seconds,
                is_of_host=self.device.clock.is_of_host,
                waited=self.waited,
                beside_seconds=self.pair.beside,
                floor_bytes=self.trials.written,
                floor_seconds=self.device.floor_seconds(self.trials.written),
                missing_weights=self.weights.missing,
                reference=reference,
                candidate=candidate,
                replaced=replaced,
                flags=tuple(f"{name} = {value}" for name, value in flags.items() if expected.get(name) != value),
                trace=trace,
            )
        )

    def _stage(self, name: str, work: Any) -> Any:
        start = time.perf_counter()
        try:
            return work()
        finally:
            self.stages[name] = time.perf_counter() - start

    def _cost(self) -> dict[str, float]:
        return {**self.stages, **self.pair.costs.seconds}

    # Loading

    def _load(self, source: str) -> None:
        """Loads both programs, the candidate after all that is to be learnt without it, and constructs both models."""
        candidate, limit = self.pair.runners[1], self.limits.start
        self.memory_before = self.device.memory_in_use()
        self._start_runners()
        seed = secrets.randbits(48)
        self.init_inputs = self.program.init_inputs(seed)
        self._bind(seed)
        with self.pair.costs("load_reference"):
            self._of_reference(lambda runner: runner.load(self.program.source, "Model", limit))
        with self.pair.costs("calibrate"):
            self.device.warm_up()
            self.offsets = calibrate(self.pair, self.program, self.init_inputs, self.device, limit)
            self.offset = median(self.offsets)
        with self.pair.costs("load_candidate"):
            candidate.load(source, "ModelNew", limit)
        self.checks.expectation = Expectation(self.program, self.weights.construct(self.init_inputs))
        for ours, theirs in self.weights.flags:
            self._compare_flags(ours, theirs)
        self._check_memory(self.memory_before)

    def _bind(self, seed: int) -> None:
        """Gives both runners the memory of inputs and outputs."""
        example = self.program.inputs(secrets.randbits(48))
        # Not the runner's model, whose own state (an RNN's hidden one) must have seen what the candidate's has.
        spec = self.program.output_spec(seed, self.init_inputs, example)
        if not nesting.tensor_specs(spec):
            raise InfraError(f"task {self.program.task.id}: its output holds no tensor")
        with self.pair.costs("bind"):
            self.pair.bind(example, spec, self.limits.start)

    def _start_runners(self) -> None:
        """Both take hold of the device at the same time."""
        with self.pair.costs("start"):
            for runner in self.pair.runners:
                runner.begin_start()
            for runner in self.pair.runners:
                runner.end_start(self.limits.start)

    def _of_reference(self, work: Callable[[RunnerHandle], Any]) -> Any:
        return of_reference(self.program.task.id, lambda: work(self.pair.runners[0]))

    def _compare_flags(self, ours: dict[str, str], theirs: dict[str, str]) -> None:
        changed = [f"{name} = {theirs.get(name)}" for name in ours if ours[name] != theirs.get(name)]
        if changed and not any(finding.kind == "flags" for finding in self.findings):
            message = f"the program set {', '.join(changed)}; both sides run under the same flags, so it was set back"
            self.findings.append(Finding("flags", "hint", message))

    def _check_memory(self, before: int) -> None:
        """What a runner takes past its allocator's limit, the device's own account shows."""
        used = self.device.memory_in_use() - before
        if self.device_memory_bytes and used > 2 * self.device_memory_bytes:
            message = f"uses {used / 2**30:.1f} GiB of device memory, at most {self.device_memory_bytes / 2**30:.1f}"
            raise RunnerFailure(Outcome.RUNTIME_ERROR, f"the program {message} allowed")

    # Timing

    def _time(self) -> tuple[Estimate, Timing]:
        """Bursts of both sides in random order until the preset's criteria are met; every output checked."""
        if self.weights.are_new:  # what was computed ahead from the weights of the first calls is wrong now
            self.checks.expectation = Expectation(self.program, self.weights.draw())
        # A timed output is compared with the reference's at the task's dtype: both carry rounding errors.
        own = [(2 * rms, 2 * largest) for rms, largest in self.trials.own_errors]
        with self.pair.costs("warm_up"):
            self.device.warm_up()
        seconds = max(self.trials.reference_seconds, self.trials.candidate_seconds / _MUCH_SLOWER)
        calls, warm = self.device.calls(seconds, self.pair.slots)
        pairs: list[Pair] = []
        alone: list[Pair] = []
        clocks: list[ClockSample] = []
        start, warmup, reason = time.perf_counter(), self.preset.warmup, None
        while reason is None:
            with self.pair.costs("draw_inputs"):
                values = [self.program.inputs(secrets.randbits(48)) for _ in range(calls)]
            seeds = [secrets.randbits(48) for _ in range(calls)]
            first = random.random() < 0.5
            done = self.pair.round(values, seeds, self.trials.timeouts(calls), candidate_first=first, warm=warm)
            self.checks.timed(done, own)
            with self.pair.costs("clock_log"):
                sample = self.device.clock_sample()
            if warmup > 0:
                warmup -= 1
                start = time.perf_counter()
                continue
            clocks += [sample] if sample else []
            pairs.append((done.reference, done.candidate))
            if calls > 1 and len(alone) < _CALLS_ALONE:  # in between, so that what disturbs one disturbs the other
                alone.append(self._time_alone(own))
            reason = self.preset.stop(self.device.clock.ratios(pairs, self.offset), time.perf_counter() - start)
        reference, candidate = self.device.clock.seconds(pairs, self.offset)
        if alone:
            self._look_alone(alone, (median_estimate(reference), median_estimate(candidate)), own)
        return self._estimates(pairs, reason, clocks)

    def _look_alone(self, alone: list[Pair], together: tuple[Estimate, Estimate], own: Errors) -> None:
        """What a call takes alone, and once more where that seems long: what happens to delay some calls does not delay
        the least of many, which a core's other users do not either."""
        clock = self.device.clock
        for more in (0, 2 * _CALLS_ALONE):
            alone += [self._time_alone(own) for _ in range(more)]
            sides = clock.seconds(alone, self.offset)
            reference, candidate = (replace(median_estimate(side), low=min(side)) for side in sides)
            self.alone = reference, candidate
            if not takes_longer_alone(together, self.alone, clock.alone_seconds, clock.is_of_host):
                return

    def _time_alone(self, own: Errors) -> Pair:
        """A burst of one call a side, for the guard to compare with."""
        with self.pair.costs("alone"):
            values, seeds = [self.program.inputs(secrets.randbits(48))], [secrets.randbits(48)]
            done = self.pair.round(values, seeds, self.trials.timeouts(1), candidate_first=random.random() < 0.5)
            self.checks.timed(done, own)
        return done.reference, done.candidate

    def _estimates(self, pairs: list[Pair], reason: str, clocks: list[ClockSample]) -> tuple[Estimate, Timing]:
        clock = self.device.clock
        reference, candidate = clock.seconds(pairs, self.offset)
        self.hidden, self.waited = clock.hidden(pairs), waited_more(pairs)
        timing = Timing(
            candidate_seconds=median_estimate(candidate),
            reference_seconds=median_estimate(reference),
            pairs=len(pairs),
            stopped_by=reason,
            clock_disagreement=self.hidden.share.value,
            clocks=tuple(clocks),
        )
        if self.preset.paper:
            speedup, discard = paper_estimate(clock.ratios(pairs, self.offset))
            self.findings += [discard] if discard else []
            return speedup, timing
        return calibrated_estimate([clock.ratios(pairs, one) for one in self.offsets]), timing

    # Other shapes

    def _try_shapes(self) -> None:
        """Calls both sides on inputs of other shapes, where the task's sizes allow them and the reference takes them.
        A candidate that fails there is specialised to the task's sizes, or wrong: a finding says so."""
        for sizes in shape_variants(self.program.task)[: self.preset.shapes]:
            try:
                other = TaskProgram(self.program.task.with_sizes(**sizes), self.device.torch_device)
                example = other.inputs(secrets.randbits(48))
                spec = other.output_spec(0, self.init_inputs, example)
            except ProgramError:
                continue  # this task does not come in this shape
            described = ", ".join(f"{name} = {value}" for name, value in sizes.items())
            try:
                self._try_shape(example, spec)
            except RunnerFailure as failure:
                if self.require_shapes:
                    raise RunnerFailure(Outcome.WRONG, f"at {described}: {failure.message}") from failure
                what = "not tried to the end" if failure.outcome is Outcome.TIMEOUT else "fails"
                self.findings.append(Finding("shapes", "hint", f"{what} at {described}: {failure.message}"))
                return

    def _try_shape(self, example: list[Any], spec: nesting.Spec) -> None:
        comparisons = list(self.checks.made)
        try:
            # A program that is only noted to fail there may not keep the device long, as by compiling itself again.
            seconds = self.limits.start if self.require_shapes else min(self.limits.start, _SHAPE_SECONDS)
            self.pair.bind(example, spec, self.limits.start, most=1)
            self.pair.round([example], [0], (self.limits.start, seconds))
            expected, own, _ = self.checks.expectation.of(example, 0, self.pair.outputs(0))
            self.checks.exactly(expected, own, call=(example, 0))
        except InfraError as error:
            self.findings.append(Finding("shapes", "hint", f"not tried: {error}"))
        finally:
            self.checks.made = comparisons
