"""A look on a CPU, in the sandbox, before a GPU is used: it ends programs that fail for a reason no GPU would change.

They raise an exception, or their output has another form than the reference's, or its values are plainly wrong
(`evaluators.judge.plain_values`). Runs in the judge's process (trusted). It must never end a program that might be
right on its own device. So a program that does not run is ended only if it fails twice in the same way, and neither
failure may come from the machine:

- on a CPU, with values, at small sizes (`smaller_shapes`), and
- at the task's own sizes without values (torch's `meta` device), where it is told that it is on the GPU.

A program that is written for the task's sizes passes the second, one that is written for a GPU is not looked at, and
one that depends on values passes the first. Whatever passes either is judged on its own device, as if nobody had
looked. So a program gains nothing by behaving otherwise here.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from evaluators.compile.builder import Builder
from evaluators.compile.hints import is_plain_torch
from evaluators.compile.run_settings import runner_limits
from evaluators.failures import RunnerFailure
from evaluators.host.look import call_once, is_certain
from evaluators.host.runner_handle import RunnerHandle
from evaluators.judge.judgement import Judgement, judge_text
from evaluators.judge.plain_values import PlainDifference, PlainValues
from evaluators.judge.slot import OUR_FAILURES
from evaluators.judge.verdict import make_verdict
from evaluators.records import DROP_IN, JUDGED_ON, Candidate, Correctness, Outcome, Task, Verdict
from evaluators.shared import nesting
from evaluators.tasks import ProgramError, TaskProgram, load_tasks, program_source
from evaluators.tasks.loader import TaskVariants
from evaluators.tasks.shapes import smaller_shapes

_log = logging.getLogger(__name__)
_SECONDS = 10.0  # for each of the two runs
_MOST_BYTES = 256 << 20  # of the reference's weights, inputs and outputs at the small sizes
_OF_THE_MACHINE = ("MemoryError", "OSError", "NotImplementedError", "TimeoutError", "KeyboardInterrupt", "SystemExit")
_DEVICE_WORDS = re.compile(  # messages of programs that may do better on another device, or with values
    r"\bcpu\b|cuda|device|backend|not.implemented|not.supported|unsupported|\bmeta\b|half|bfloat16|float16|storage",
    re.IGNORECASE,
)
RightPrograms = Callable[[str], Sequence[str]]
"""The sources of programs that are known to be right, by the id of their task."""


@dataclass(frozen=True)
class _Call:
    """What a call of a task's program needs at some sizes: arguments of the constructor and of the call, and the form
    of the output."""

    init_inputs: list[Any]
    inputs: list[Any]
    expected: nesting.Spec


@dataclass(frozen=True)
class _Calls:
    """The calls of a program: with values at `small` sizes, and `without_values` at the task's own. `values`: what its
    values are compared with; None if nothing is certain of them."""

    small: _Call
    without_values: _Call
    values: PlainValues | None = None


class CpuLook:
    """Looks at programs of one architecture in the processes of its builder."""

    def __init__(
        self,
        builder: Builder,
        right_programs: RightPrograms = lambda _: (),
        *,
        guarded: bool = True,
        strict: str = DROP_IN,
        compares_values: bool = True,
    ) -> None:
        """`right_programs`: a task is left out if one of them, or its reference, would be ended. `guarded`, `strict`:
        those of the evaluators (`evaluators.evaluator.Evaluator`). `compares_values`: whether values may end one."""
        self._compares_values = compares_values
        self._place, self._limits = builder.place, builder.limits
        self._right_programs, self._guarded, self._strict = right_programs, guarded, strict
        self._containment: tuple[str, ...] = ()  # of the last runner
        self._calls: dict[str, _Calls | None] = {}  # by the task's digest; None: the task is left out

    def look(self, task: Task, source: str, *, preset: str) -> Verdict | None:
        """The verdict on a program that would certainly fail on its own device, too; None for any other, which is to be
        judged there. Never raises for what a program does, nor for a failure of ours: then nothing is certain."""
        start = time.perf_counter()
        judgement = judge_text(source)
        if judgement is None and is_plain_torch(source):
            calls = self._calls_of(task)
            judgement = None if calls is None else self._judgement(task, calls, source)
        if judgement is None:
            return None
        seconds = time.perf_counter() - start
        judgement = replace(judgement, cost={"build": 0.0, "compile": 0.0, "cpu_look": seconds, "total": seconds})
        return make_verdict(
            judgement,
            task,
            Candidate.propose(task.id, source, ""),
            preset,
            {"arch": self._place.arch, "torch": str(torch.__version__), JUDGED_ON: "cpu"},
            guarded=self._guarded,
            strict=self._strict,
            speedups={},
        )

    def is_used_for(self, task: Task) -> bool:
        """Whether programs of a task can be ended here: its reference and its right programs pass."""
        return self._calls_of(task) is not None

    def _calls_of(self, task: Task) -> _Calls | None:
        """The calls of a task's programs; None if the task is left out."""
        if task.digest not in self._calls:
            self._calls[task.digest] = calls = self._admit(task)
            if calls is None:
                _log.info("%s: its programs are not looked at on a CPU", task.id)
        return self._calls[task.digest]

    def _admit(self, task: Task) -> _Calls | None:
        reference = f"{program_source(task)}\n\nclass ModelNew(Model):\n    pass\n"
        try:
            large = _call_without_values(task)
            if large is None or self._failure_without_values(large, reference):
                return None  # programs that do the same would fail there, too
            for sizes in smaller_shapes(task):
                small = _small_call(task.with_sizes(**sizes))
                if small is None or self._run_at_small_sizes(small, reference)[0] is not None:
                    continue
                calls = _Calls(small, large, self._values_of(task, sizes, small, reference))
                right = [source for source in self._right_programs(task.id) if is_plain_torch(source)]
                return None if any(self._judgement(task, calls, source) for source in right) else calls
        except OUR_FAILURES as error:
            _log.warning("%s: a look on a CPU failed: %s", task.id, error)
        return None

    def _values_of(self, task: Task, sizes: dict[str, int], small: _Call, reference: str) -> PlainValues | None:
        """The values that the task's programs are compared with; None if they decide nothing. Raises InfraError."""
        if not self._compares_values:
            return None
        try:
            values = PlainValues.of(task, sizes)
        except ProgramError:
            _log.info("%s: values on a CPU decide nothing", task.id, exc_info=True)
            return None
        if values is None or self._run_at_small_sizes(small, reference, values) != (None, None):
            return None
        return values

    def _judgement(self, task: Task, calls: _Calls, source: str) -> Judgement | None:
        """The judgement of a program that fails in both calls in the same way, or whose values are plainly wrong; None
        for any other."""
        values = calls.values if calls.values is not None and calls.values.may_decide(source) else None
        try:
            first, difference = self._run_at_small_sizes(calls.small, source, values)
            if difference is not None:
                found = difference.comparison
                correctness = Correctness(difference.trials, found.error, found.tolerance)
                return Judgement(Outcome.WRONG, difference.describe(), correctness, containment=self._containment)
            if first is None or not _is_of_the_program(first):
                return None
            second = self._failure_without_values(calls.without_values, source)
        except OUR_FAILURES as error:
            _log.warning("%s: a look on a CPU failed: %s", task.id, error)
            return None
        if second is None or not _is_of_the_program(second) or _way(first) != _way(second):
            return None
        # The second message speaks of the task's own sizes.
        return Judgement(second.outcome, second.message, containment=self._containment)

    def _run_at_small_sizes(
        self, small: _Call, source: str, values: PlainValues | None = None
    ) -> tuple[RunnerFailure | None, PlainDifference | None]:
        """How the program fails on a CPU, with values; None if it runs. Then how its output is plainly wrong, by
        `values`; None if it is not. Raises InfraError and ProgramError."""
        found: list[PlainDifference | None] = []

        def run(runner: RunnerHandle, left: Callable[[], float]) -> None:
            seed = secrets.randbits(48)
            runner.load(source, "ModelNew", left())
            runner.construct(seed, small.init_inputs, left())
            call_once(runner, small.inputs, small.expected, self._place.host, seed, left())
            if values is not None:
                keep_weights = self._strict != DROP_IN
                found.append(values.difference(runner, self._place.host, left, keep_weights=keep_weights))

        failure = self._failure_of(run)
        return failure, found[0] if found else None

    def _failure_without_values(self, large: _Call, source: str) -> RunnerFailure | None:
        """How the program fails at the task's own sizes, on `meta`; None if it runs. Raises InfraError."""
        capability, arch = self._place.farm.toolchain.capability, self._place.arch
        self._place.host_zygote.prepare_forms()

        def run(runner: RunnerHandle, left: Callable[[], float]) -> None:
            arguments = large.init_inputs, large.inputs
            form = runner.discover(source, arguments, capability, arch, left(), large.expected)
            if form is not None:
                raise RunnerFailure(Outcome.WRONG, nesting.describe_mismatch(large.expected, form))

        return self._failure_of(run)

    def _failure_of(self, run: Callable[[RunnerHandle, Callable[[], float]], None]) -> RunnerFailure | None:
        place = self._place
        runner = RunnerHandle(place.host_zygote, place.host, place.slot, 0, runner_limits(self._limits))
        end = time.monotonic() + _SECONDS
        try:
            runner.begin_start()
            runner.end_start(self._limits.start_seconds)
            self._containment = runner.process.active
            run(runner, lambda: max(0.1, end - time.monotonic()))
        except RunnerFailure as failure:
            return failure.with_traceback(None)  # whose frames would keep the memory of the program
        finally:
            runner.end()
        return None


def right_programs(source: str, profile: str) -> dict[str, list[str]]:
    """The programs of plain torch that come with the tasks of `source` (`evaluators.tasks.loader.TaskVariants`) and are
    right, by task. `profile`: the device that they are for, `cpu` or `cuda`. Raises TaskError."""
    variants = TaskVariants(source, profile)
    return {
        task.id: [one.source for one in variants.of(task.id) if one.expect != "wrong" and is_plain_torch(one.source)]
        for task in load_tasks(source, "source")
    }


def _call_without_values(task: Task) -> _Call | None:
    """A call on torch's `meta` device at the sizes of the task. None if its reference needs values to show the form of
    its output."""
    try:
        program = TaskProgram(task, torch.device("meta"), any_strides=True)
        init_inputs, inputs = program.init_inputs(0), program.inputs(0)
        return _Call(init_inputs, inputs, program.output_spec(0, init_inputs, inputs))
    except ProgramError:
        return None


def _small_call(task: Task) -> _Call | None:
    """A call on the CPU at the sizes of the task; None if it takes too much memory. Raises ProgramError."""
    forms = _call_without_values(task)
    if forms is None:
        return None
    weights = TaskProgram(task, torch.device("meta")).model(0, forms.init_inputs).state_dict().values()
    specs = nesting.flatten(forms.inputs)[0], forms.expected
    tensors = sum(nesting.layout(nesting.tensor_specs(spec))[1] for spec in specs)
    if sum(weight.nbytes for weight in weights) + tensors > _MOST_BYTES:
        return None
    program, seed = TaskProgram(task, any_strides=True), secrets.randbits(48)
    init_inputs, inputs = program.init_inputs(seed), program.inputs(seed)
    return _Call(init_inputs, inputs, program.output_spec(seed, init_inputs, inputs))


def _is_of_the_program(failure: RunnerFailure) -> bool:
    """Whether an output has another form, or the program raised an exception that no lack of anything and no device
    explains."""
    if failure.outcome is Outcome.WRONG:
        return True
    return (
        failure.outcome in (Outcome.RUNTIME_ERROR, Outcome.BUILD_ERROR)
        and bool(failure.kind)
        and failure.kind not in _OF_THE_MACHINE
        and is_certain(failure)
        and not _DEVICE_WORDS.search(failure.message.partition("\nline ")[0])
    )


def _way(failure: RunnerFailure) -> tuple[Outcome, str, str]:
    """How it failed: the outcome, the kind of exception, and the program's line that it came from."""
    return failure.outcome, failure.kind, failure.message.rpartition("\nline ")[2] if failure.kind else ""
