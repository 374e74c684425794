"""The last stage of a judgement: both sides are called on inputs of shapes that the task does not show.

A candidate that fails there is specialised to the task's sizes, or wrong.
"""

from __future__ import annotations

import secrets
from typing import Any

from evaluators.failures import InfraError, RunnerFailure
from evaluators.host.device import Device
from evaluators.judge.checks import Checks
from evaluators.judge.pair import RunnerPair
from evaluators.records import Finding, Outcome
from evaluators.shared import nesting
from evaluators.tasks import ProgramError, TaskProgram
from evaluators.tasks.shapes import shape_variants

_SECONDS = 3.0  # of a call that is not required to work


class OtherShapes:
    """Tries the shape variants of one task, at most `count` of them, on both sides of a pair of runners.

    `required`: a candidate that fails at another shape is wrong. Otherwise a hint says that it fails.
    """

    def __init__(
        self,
        program: TaskProgram,
        device: Device,
        pair: RunnerPair,
        checks: Checks,
        *,
        timeout: float,
        count: int,
        required: bool,
    ) -> None:
        self._program, self._device, self._pair, self._checks = program, device, pair, checks
        self._timeout, self._count, self._required = timeout, count, required

    def run(self, init_inputs: list[Any]) -> list[Finding]:
        """Hints about the first shape at which the candidate fails. A shape that the reference does not take is left
        out. Raises RunnerFailure if shapes are required and the candidate fails."""
        findings: list[Finding] = []
        for sizes in shape_variants(self._program.task)[: self._count]:
            try:
                program = self._program.resized(**sizes)
                example = program.inputs(secrets.randbits(48))
                spec = program.output_spec(0, init_inputs, example)
            except ProgramError:
                continue
            shape = ", ".join(f"{name} = {value}" for name, value in sizes.items())
            try:
                self._call(example, spec)
            except InfraError as error:
                findings.append(Finding("shapes", "hint", f"not tried: {error}"))
            except RunnerFailure as failure:
                if self._required:
                    raise RunnerFailure(Outcome.WRONG, f"at {shape}: {failure.message}") from failure
                what = "not tried to the end" if failure.outcome is Outcome.TIMEOUT else "fails"
                return [*findings, Finding("shapes", "hint", f"{what} at {shape}: {failure.message}")]
        return findings

    def _call(self, example: list[Any], spec: nesting.Spec) -> None:
        """One call of each side at a shape; the outputs are compared, and the comparison is not remembered."""
        comparisons = list(self._checks.comparisons)
        # A failure that only gives a hint must not keep the device for long, such as by compiling for the new shape.
        seconds = self._timeout if self._required else min(self._timeout, _SECONDS)
        try:
            self._pair.bind(example, spec, self._timeout, most=1)
            self._pair.run_round([example], [0], (self._timeout, seconds))
            expected, errors, _ = self._checks.expectation.expect(example, 0, self._pair.outputs(0))
            self._checks.check_values(expected, errors, call=(example, 0))
        finally:
            self._checks.comparisons = comparisons
