"""Whether a task can tell a good program from a cheat: measured on calls of its reference, never read off its source.

A task whose output is the same whatever it is given, varies by less than the evaluator tolerates, or takes far less
work than its reference does, rewards the program that found that out and teaches nothing about GPU code.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from evaluators.audit.records import AuditFinding, FindingKind, TaskAudit, common_findings
from evaluators.judge.correctness import Comparison, compare, is_inexact, relative_errors, worst_of
from evaluators.judge.expectation import Errors, Expectation
from evaluators.judge.inputs import distributions
from evaluators.records import Task
from evaluators.shared import nesting
from evaluators.tasks import ProgramError, TaskProgram

CONFIRMATIONS = 20
_INPUT_SEEDS = 3
_FARTHER = 1000  # between the seeds of two draws, each of which takes the few that follow
_ROUNDING = 1e-4  # a float64 output that much smaller than the task's own: that is rounding error alone
_AFFINE = 1e-9  # relative, in float64
_ELSEWHERE = -3.0  # times other inputs: into what the task's own may never reach
_MUCH_LESS = 4.0  # times less work: a collapse, beyond what tiling or fusing saves


def audit_task(
    task: Task, sizes: Sequence[Mapping[str, int]] = ({},), seed: int | None = None, confirmations: int = CONFIRMATIONS
) -> TaskAudit:
    """Audits a task on the CPU, at each of the `sizes` (overrides by name), then in as many other draws of inputs and
    weights as `confirmations` says, at the first of them: a finding counts where it is found every time.

    `seed`: of inputs and weights, secret unless given. Raises nothing for a reference that fails: see
    `TaskAudit.failure`. Bounds neither time nor memory: see `evaluators.audit.run`.
    """
    start, seed = time.perf_counter(), secrets.randbits(40) if seed is None else seed
    trials = [(one, seed) for one in sizes]
    trials += [(sizes[0], seed + _FARTHER * number) for number in range(1, 1 + confirmations)]
    findings: tuple[AuditFinding, ...] = ()
    try:
        for index, (one, drawn) in enumerate(trials):
            found = tuple(_Audit(task.with_sizes(**one), drawn).findings())
            findings = common_findings(findings, found) if index else found
            if not findings:
                break
    except (ProgramError, MemoryError) as error:
        return TaskAudit.failed(task, str(error) or "out of memory", time.perf_counter() - start)
    seconds, draws = time.perf_counter() - start, 1 + confirmations if findings else 1
    return TaskAudit(task.id, task.text_digest, task.name, findings, draws=draws, sizes=dict(sizes[0]), seconds=seconds)


# Calls


@dataclass(frozen=True)
class _Call:
    """What the reference gave for `inputs`, what the evaluator expects of a program for them, and the reference's own
    errors, if these are `known`."""

    inputs: list[Any]
    given: list[Tensor]
    expected: list[Tensor]
    own: Errors
    known: bool

    def compared(self, outputs: Sequence[Tensor], with_given: bool = False) -> Comparison:
        """How the evaluator would find a program that gives `outputs`."""
        wanted = self.given if with_given else self.expected
        if _has_another_form(outputs, wanted):
            return Comparison(float("inf"), 0.0, "another shape")
        pairs = zip(outputs, wanted, self.own, self.given, strict=True)
        return worst_of([compare(one, other, own, given.dtype) for one, other, own, given in pairs])

    @property
    def last_place(self) -> float:
        """The relative distance of neighbouring numbers, at the outputs' coarsest dtype."""
        return max((torch.finfo(one.dtype).eps for one in self.given if is_inexact(one.dtype)), default=0.0)


class _Cheat(list[Comparison]):
    """How a cheat's outputs compare with what is expected, call by call, up to the first that fails."""

    def __init__(self, comparisons: Iterable[Comparison]) -> None:
        for one in comparisons:
            self.append(one)
            if not one.passes:
                break

    @property
    def passes(self) -> bool:
        return all(one.passes for one in self)

    def is_exact(self, last_place: float) -> bool:
        return self.passes and max(one.error for one in self) <= last_place


class _Audit:
    """The calls of one task's reference at its sizes, and what they show. Raises ProgramError where one fails."""

    def __init__(self, task: Task, seed: int) -> None:
        self._program = TaskProgram(task)
        self._seed = seed
        self._init_inputs = self._program.init_inputs(seed)
        self._model, self._wide = self._new_model(seed), self._new_model(seed).to(torch.float64)
        self._expectation = Expectation(self._program, self._wide)
        self._calls = [self._call(self._program.inputs(seed + index)) for index in range(1, 1 + _INPUT_SEEDS)]
        self._calls += self._other_values(self._calls[0].inputs)

    def _new_model(self, seed: int) -> nn.Module:
        return self._program.model(seed, self._init_inputs)

    def _run(
        self, model: nn.Module, inputs: list[Any], dtype: torch.dtype | None = None, seed: int = 0
    ) -> list[Tensor]:
        """The tensors of a call's output on copies of the inputs, in another floating-point `dtype` where asked for.
        Calls draw the same random numbers unless `seed` differs."""
        _, tensors = nesting.flatten(inputs)
        copies = [one.to(dtype or one.dtype, copy=True) if one.is_floating_point() else one.clone() for one in tensors]
        try:
            with torch.no_grad(), self._program.seeded(self._seed + seed):
                _, outputs = nesting.flatten(model(*nesting.unflatten(inputs, copies)))
        except Exception as error:
            raise ProgramError(f"forward fails: {error!r}") from error
        if not outputs:
            raise ProgramError("the output holds no tensor")
        return outputs

    def _call(self, inputs: list[Any]) -> _Call:
        given = self._run(self._model, inputs)
        expected, own, known = self._expectation.of(inputs, self._seed, given)
        return _Call(inputs, given, expected, own, known)

    def _other_values(self, inputs: list[Any]) -> Iterator[_Call]:
        """Calls on the distributions of values that the evaluator tries besides, where it judges by them."""
        for _, values in distributions(inputs, torch.Generator().manual_seed(self._seed)):
            try:
                call = self._call(values)
            except ProgramError:
                continue
            if call.known and all(bool(torch.isfinite(one).all()) for one in call.expected):
                yield call

    # What they show

    def findings(self) -> list[AuditFinding]:
        """All findings; a constant output stands alone, since it explains every other."""
        other = self._new_model(self._seed + 1)
        theirs = [self._with(other, call) for call in self._calls]
        before = self._calls[-1:] + self._calls[:-1]
        inputs = _Cheat(one.compared(last.expected) for one, last in zip(self._calls, before, strict=True))
        weights = _Cheat(one.compared(their.given, True) for one, their in zip(self._calls, theirs, strict=True))
        last_place = self._calls[0].last_place
        ignores_inputs = inputs.is_exact(last_place) and theirs[0].compared(theirs[1].given).passes
        if ignores_inputs and weights.is_exact(last_place):
            return [_finding(FindingKind.CONSTANT, "the output is the same whatever the inputs and weights", inputs)]
        if message := self._rounding_alone():
            return [AuditFinding(FindingKind.CONSTANT, message)]
        found = []
        if ignores_inputs:
            message = f"the output is the same for other inputs{self._same_inputs()}"
            found.append(_finding(FindingKind.INPUT_INDEPENDENT, message, inputs))
        elif tiny := self._tiny(inputs, before):
            found.append(tiny)
        if (ignored := self._weights_ignored(other, weights)) and ignored.passes:
            message = "the output is the same with other weights"
            found.append(_finding(FindingKind.WEIGHT_INDEPENDENT, message, ignored))
        if message := self._repeats([*self._calls, *theirs]) or self._affine():
            found.append(AuditFinding(FindingKind.COLLAPSIBLE, message))
        return found

    def _with(self, model: nn.Module, call: _Call) -> _Call:
        """The same call of another model."""
        given = self._run(model, call.inputs)
        return _Call(call.inputs, given, given, call.own, known=False)

    def _same_inputs(self) -> str:
        first, second = (nesting.flatten(call.inputs)[1] for call in self._calls[:2])
        equal = len(first) == len(second) and all(map(torch.equal, first, second))
        return " (get_inputs draws the same ones whatever the seed)" if equal else ""

    def _rounding_alone(self) -> str | None:
        """Of outputs that vanish in float64, which no program can be expected to meet, or a sentence."""
        if all(call.known for call in self._calls) or self._expectation.upcast_fails:
            return None
        shares, largest = [], 0.0
        for seed, call in zip((self._seed, self._seed + 1), self._calls, strict=False):
            exact = self._run(self._new_model(seed).to(torch.float64), call.inputs, torch.float64)
            for one, wide in zip(self._with(self._new_model(seed), call).given, exact, strict=True):
                if not one.is_floating_point() or one.shape != wide.shape:
                    return None
                size, wide_size = (float(some.to(torch.float64).square().mean().sqrt()) for some in (one, wide))
                if not wide_size <= _ROUNDING * size < float("inf"):
                    return None
                shares.append(wide_size / size if size else 0.0)
                largest = max(largest, size)
        what = f"{largest:.1e} in root mean square, and {max(shares):.1e} times that in float64"
        return f"the output is zero but for rounding errors, whatever the inputs and weights: {what}"

    def _tiny(self, inputs: _Cheat, before: list[_Call]) -> AuditFinding | None:
        """Whether outputs vary so little that other outputs, or a constant, pass for them."""
        calls = list(zip(self._calls, before, strict=True))
        zeros = _Cheat(call.compared([torch.zeros_like(one) for one in call.expected]) for call in self._calls)
        means = _Cheat(call.compared([_filled_with_mean(one) for one in last.expected]) for call, last in calls)
        cheats = {"zeros pass": zeros, "a constant passes": means, "other inputs' passes": inputs}
        for what, cheat in cheats.items():
            if cheat.passes:
                return _finding(FindingKind.TINY, f"the output hardly varies: {what} for it", cheat)
        return None

    def _weights_ignored(self, other: nn.Module, weights: _Cheat) -> _Cheat | None:
        """The outputs of weights as drawn by another seed; where these are always the same, of changed ones. Changes
        `other` then."""
        parameters = list(zip(self._model.parameters(), other.parameters(), strict=True))
        if not parameters:
            return None
        if not all(torch.equal(mine, theirs) for mine, theirs in parameters):
            return weights
        with torch.no_grad(), self._program.seeded(self._seed):
            for _, one in parameters:
                if one.is_floating_point():
                    one.add_(torch.randn_like(one) * (0.5 * one.square().mean().sqrt() + 0.1))
        return _Cheat(call.compared(self._with(other, call).given, with_given=True) for call in self._calls)

    def _repeats(self, calls: list[_Call]) -> str | None:
        """Of an output that is one slice over and over, in every call, or None."""
        if any(_has_another_form(call.expected, self._calls[0].expected) for call in calls):
            return None
        sentences = []
        for index, first in enumerate(self._calls[0].expected):
            for axis in (axis for axis, size in enumerate(first.shape) if size > 1):
                found = _Cheat(_repeated(call, index, axis) for call in calls)
                if found.passes:
                    error = max(one.error for one in found)
                    what = f"along axis {axis} all {first.shape[axis]} slices of the output are the same"
                    sentences.append(f"{what} (relative error {error:.1e} in {len(calls)} calls)")
                    break
            else:
                return None
        return "; ".join(sentences)

    def _affine(self) -> str | None:
        """Of an output that is affine in the inputs and takes far fewer multiply-adds as such, or None."""
        first = self._calls[0]
        if not (self._is_affine(self._model, torch.float32, 1e-3) and first.known):
            return None
        if not self._is_affine(self._wide, torch.float64, _AFFINE):
            return None
        plain = self._run(self._wide, first.inputs, torch.float64)
        if _distance(plain, self._run(self._wide, first.inputs, torch.float64, seed=1)) > _AFFINE:
            return None  # dropout: not one map
        with FlopCounterMode(display=False) as flops:
            self._run(self._wide, first.inputs, torch.float64)
        given = [one for one in nesting.flatten(first.inputs)[1] if one.is_floating_point()]
        needed = sum(one.numel() for one in given) * sum(one.numel() for one in plain) // self._samples(plain)
        done = flops.get_total_flops() // 2
        if done < _MUCH_LESS * needed:
            return None
        return f"the output is affine in the inputs: {needed:,} multiply-adds give it, the reference does {done:,}"

    def _is_affine(self, model: nn.Module, dtype: torch.dtype, tolerance: float) -> bool:
        """Whether f(x) + f(y) = f(x + y) + f(0) for the floating-point inputs, and f is not constant; not where the
        program does not take one of these."""
        first, second = (call.inputs for call in self._calls[:2])
        pairs = list(zip(nesting.flatten(first)[1], nesting.flatten(second)[1], strict=True))
        if any(x.shape != y.shape for x, y in pairs):
            return False
        points = []
        for x_share, y_share in ((1, 0), (0, _ELSEWHERE), (1, _ELSEWHERE), (0, 0)):
            mixed = [x.to(dtype) * x_share + y.to(dtype) * y_share if is_inexact(x.dtype) else x for x, y in pairs]
            try:
                points.append(self._run(model, nesting.unflatten(first, mixed), dtype))
            except ProgramError:
                return False
        at_x, at_y, at_sum, at_zero = points
        if not all(is_inexact(one.dtype) for one in at_x) or any(map(_has_another_form, points, points[1:])):
            return False
        left = [one + other for one, other in zip(at_x, at_y, strict=True)]
        right = [one + other for one, other in zip(at_sum, at_zero, strict=True)]
        return _distance(right, left) <= tolerance < _distance(at_zero, at_x)

    def _samples(self, outputs: list[Tensor]) -> int:
        """How many samples the leading axes hold, along which no input of the first call affects another's output."""
        x, y = (nesting.flatten(call.inputs)[1] for call in self._calls[:2])
        samples = 1
        for axis in range(min(one.dim() for one in (*x, *outputs))):
            size = x[0].shape[axis]
            if any(one.shape[axis] != size for one in (*x, *outputs)):
                break
            mixed = [one.clone() for one in x]
            for one, other in zip(mixed, y, strict=True):
                one.narrow(axis, 0, 1).copy_(other.narrow(axis, 0, 1))
            changed = self._run(self._wide, nesting.unflatten(self._calls[0].inputs, mixed), torch.float64)
            if _distance(*([one.narrow(axis, 1, size - 1) for one in some] for some in (changed, outputs))) > _AFFINE:
                break
            samples *= size
        return samples


def _finding(kind: FindingKind, message: str, cheat: _Cheat) -> AuditFinding:
    error, tolerance = max(one.error for one in cheat), min(one.tolerance for one in cheat)
    figures = f"relative error {error:.1e} where {tolerance:.1e} is allowed, in {len(cheat)} calls"
    return AuditFinding(kind, f"{message} ({figures})")


def _filled_with_mean(one: Tensor) -> Tensor:
    mean = float(one.to(torch.float64).mean())
    return torch.full_like(one, mean if is_inexact(one.dtype) else round(mean))


def _has_another_form(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return [some.shape for some in one] != [some.shape for some in other]


def _repeated(call: _Call, index: int, axis: int) -> Comparison:
    """How the first slice along an axis compares, taken for all of an output."""
    expected = call.expected[index]
    repeated = expected.narrow(axis, 0, 1).expand_as(expected)
    return compare(repeated, expected, call.own[index], call.given[index].dtype)


def _distance(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest relative error of the outputs; infinity where one is not finite."""
    if not all(bool(torch.isfinite(one).all()) for one in (*actual, *expected)):
        return float("inf")
    return max(max(relative_errors(*pair)) for pair in zip(actual, expected, strict=True))
