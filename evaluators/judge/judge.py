"""The trusted side of one judgement: load, check, time, trace, guard, shapes.

It owns seeds, inputs, expected outputs and the clock. The candidate's own clock is checked against the judge's, never
simply believed (`evaluators.timing.clocks`). Every call, timed or not, gets inputs that nobody has seen before, and its
output is checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from evaluators.failures import RunnerFailure
from evaluators.guard import Evidence, examine
from evaluators.host.device import Device
from evaluators.host.runner_handle import RunnerHandle
from evaluators.judge.checks import Checks
from evaluators.judge.demands import Demands
from evaluators.judge.judgement import Judgement
from evaluators.judge.loading import Loading, MemoryLimit
from evaluators.judge.other_shapes import OtherShapes
from evaluators.judge.pair import RunnerPair
from evaluators.judge.timed_calls import Measurement, TimedCalls
from evaluators.judge.trials import CallLimits, Trials
from evaluators.judge.weights import Weights
from evaluators.judge.witness import trace_of
from evaluators.records import Finding, Outcome, Trace
from evaluators.tasks import TaskProgram
from evaluators.timing.presets import Preset

_TRACE_SECONDS = 5.0
_Result = TypeVar("_Result")


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
        device_memory_bytes: int,
        demands: Demands,
    ) -> None:
        """`device_memory_bytes`: what one runner may take, 0 for no limit."""
        self._device, self._limits = device, limits
        self._pair = pair = RunnerPair(device, reference, candidate, program.task.id)
        self._weights = weights = Weights(pair, program, device, limits.start, keep=demands.by_value)
        self._checks = checks = Checks(pair, device)
        self._memory = MemoryLimit(device, device_memory_bytes)
        self._loading = Loading(program, device, pair, weights, checks, self._memory, limits.start)
        self._trials = Trials(program, pair, device, weights, checks, preset, limits)
        self._timed_calls = TimedCalls(program, pair, device, weights, checks, self._trials, preset)
        self._other_shapes = OtherShapes(
            program, device, pair, checks, timeout=limits.start, count=preset.shapes, required=demands.shapes
        )
        self._stages: dict[str, float] = {}

    def judge(self, source: str, *, in_full: bool = True) -> Judgement:
        """Loads both programs, checks the candidate's outputs, times the two in turns and examines the evidence.

        Without `in_full` the trace and the other shapes are left out. Raises InfraError, GateTooSmall, and Unbuilt for
        an extension that the candidate asks for and nobody has built.
        """
        trace, is_recorded = None, False
        try:
            loaded = self._stage("load", lambda: self._loading.run(source))
            findings = list(loaded.findings)
            self._stage("check", self._trials.run)
            measured = self._stage("time", lambda: self._timed_calls.run(loaded.calibration))
            findings += [measured.discard] if measured.discard else []
            self._memory.check(self._pair.gate_bytes)
            if in_full:
                trace, is_recorded = self._stage("trace", lambda: self._trace(source))
            findings += self._stage("guard", lambda: self._examine(source, measured, trace, is_recorded))
            if in_full:
                findings += self._stage("shapes", lambda: self._other_shapes.run(loaded.init_inputs))
        except RunnerFailure as failure:
            correctness = self._checks.correctness(self._trials.deterministic)
            return Judgement(failure.outcome, failure.message, correctness, cost=self._cost())
        return Judgement(
            Outcome.OK,
            "",
            self._checks.correctness(self._trials.deterministic),
            measured.speedup,
            measured.timing,
            tuple(findings),
            trace,
            self._cost(),
        )

    def _trace(self, source: str) -> tuple[Trace | None, bool]:
        """The kernels of one call of the candidate, None if the device or the host has no CUPTI; and whether there must
        be some."""
        records, is_recorded = self._timed_calls.trace(_TRACE_SECONDS)
        libraries = self._pair.runners[1].libraries
        return None if records is None else trace_of(records, source, libraries), is_recorded

    def _examine(self, source: str, measured: Measurement, trace: Trace | None, is_recorded: bool) -> list[Finding]:
        """The guard's findings on the evidence."""
        device, timing = self._device, measured.timing
        reference, candidate = (runner.process.census() for runner in self._pair.runners)
        (_, expected), (replaced, flags) = (runner.integrity(self._limits.call) for runner in self._pair.runners)
        return examine(
            Evidence(
                source=source,
                timing=timing,
                hidden=measured.hidden,
                together=measured.together,
                alone=measured.alone,
                alone_seconds=device.clock.alone_seconds,
                waited=measured.waited,
                slowed=measured.slowed,
                beside_seconds=self._pair.unasked_seconds,
                floor_bytes=self._trials.written_bytes,
                floor_seconds=device.floor_seconds(self._trials.written_bytes),
                missing_weights=self._weights.missing,
                reference=reference,
                candidate=candidate,
                replaced=replaced,
                flags=tuple(f"{name} = {value}" for name, value in flags.items() if expected.get(name) != value),
                trace=trace,
                is_recorded=is_recorded,
            )
        )

    def _stage(self, name: str, work: Callable[[], _Result]) -> _Result:
        """Does the work of one stage and counts its seconds."""
        start = time.perf_counter()
        try:
            return work()
        finally:
            self._stages[name] = time.perf_counter() - start

    def _cost(self) -> dict[str, float]:
        """Seconds of the stages, and of the kinds of work within them."""
        return {**self._stages, **self._pair.costs.seconds}
