"""Whether a task can tell a good program from a cheat: measured on calls of its reference, never read off its source.

A task whose output is the same whatever it is given, varies by less than the evaluator tolerates, or takes far less
work than its reference does, rewards the program that found that out and teaches nothing about GPU code.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from evaluators.audit.calls import Call, Cheat, ReferenceCalls
from evaluators.audit.collapse import describe_affine, describe_repeats
from evaluators.audit.records import AuditFinding, FindingKind, TaskAudit, common_findings
from evaluators.judge.correctness import is_inexact
from evaluators.records import Task
from evaluators.shared import nesting
from evaluators.tasks import ProgramError

CONFIRMATIONS = 20
_SEED_STEP = 1000  # between the seeds of two draws, since each draw takes the few seeds that follow its own
_ROUNDING = 1e-4  # of the task's own output: a float64 output below this share means that the own is rounding error


def audit_task(
    task: Task, sizes: Sequence[Mapping[str, int]] = ({},), seed: int | None = None, confirmations: int = CONFIRMATIONS
) -> TaskAudit:
    """Audits a task on the CPU, at each of the `sizes` (overrides by name). If there are findings, `confirmations` more
    draws of inputs and weights follow, at the first of the sizes: a finding counts if every draw has it.

    `seed`: of inputs and weights, secret unless given. Raises nothing for a reference that fails: see
    `TaskAudit.failure`. Bounds neither time nor memory: see `evaluators.audit.run`.
    """
    start, seed = time.perf_counter(), secrets.randbits(40) if seed is None else seed
    trials = [(overrides, seed) for overrides in sizes]
    trials += [(sizes[0], seed + _SEED_STEP * number) for number in range(1, 1 + confirmations)]
    findings: tuple[AuditFinding, ...] = ()
    try:
        for index, (overrides, drawn) in enumerate(trials):
            found = tuple(findings_of(ReferenceCalls(task.with_sizes(**overrides), drawn)))
            findings = common_findings(findings, found) if index else found
            if not findings:
                break
    except (ProgramError, MemoryError) as error:
        return TaskAudit.failed(task, str(error) or "out of memory", time.perf_counter() - start)
    seconds, draws = time.perf_counter() - start, 1 + confirmations if findings else 1
    return TaskAudit(task.id, task.text_digest, task.name, findings, draws=draws, sizes=dict(sizes[0]), seconds=seconds)


def findings_of(reference: ReferenceCalls) -> list[AuditFinding]:
    """All findings. A constant output stands alone, since it explains every other."""
    calls = reference.calls
    other = reference.new_model(reference.seed + 1)
    other_calls = [reference.call_of(other, call) for call in calls]
    previous = calls[-1:] + calls[:-1]
    by_inputs = Cheat(call.compare(before.expected) for call, before in zip(calls, previous, strict=True))
    by_weights = Cheat(
        call.compare(changed.outputs, with_own=True) for call, changed in zip(calls, other_calls, strict=True)
    )
    last_place = calls[0].last_place
    ignores_inputs = by_inputs.is_exact(last_place) and other_calls[0].compare(other_calls[1].outputs).passes
    if ignores_inputs and by_weights.is_exact(last_place):
        return [_finding(FindingKind.CONSTANT, "the output is the same whatever the inputs and weights", by_inputs)]
    if message := _describe_rounding(reference):
        return [AuditFinding(FindingKind.CONSTANT, message)]
    findings = []
    if ignores_inputs:
        message = f"the output is the same for other inputs{_describe_equal_inputs(calls)}"
        findings.append(_finding(FindingKind.INPUT_INDEPENDENT, message, by_inputs))
    elif tiny := _find_tiny(calls, previous, by_inputs):
        findings.append(tiny)
    if (ignored := _other_weights(reference, other, by_weights)) and ignored.passes:
        message = "the output is the same with other weights"
        findings.append(_finding(FindingKind.WEIGHT_INDEPENDENT, message, ignored))
    if message := describe_repeats([*calls, *other_calls]) or describe_affine(reference):
        findings.append(AuditFinding(FindingKind.COLLAPSIBLE, message))
    return findings


def _describe_equal_inputs(calls: Sequence[Call]) -> str:
    first, second = (nesting.flatten(call.inputs)[1] for call in calls[:2])
    equal = len(first) == len(second) and all(map(torch.equal, first, second))
    return " (get_inputs draws the same ones whatever the seed)" if equal else ""


def _describe_rounding(reference: ReferenceCalls) -> str | None:
    """A sentence if the outputs vanish in float64, else None. No program can be expected to meet such outputs."""
    if all(call.has_known_errors for call in reference.calls) or reference.has_no_wide_form:
        return None
    shares, largest = [], 0.0
    for seed, call in zip((reference.seed, reference.seed + 1), reference.calls, strict=False):
        exact = reference.run(reference.new_model(seed).to(torch.float64), call.inputs, torch.float64)
        outputs = reference.call_of(reference.new_model(seed), call).outputs
        for output, wide in zip(outputs, exact, strict=True):
            if not output.is_floating_point() or output.shape != wide.shape:
                return None
            size, wide_size = (float(some.to(torch.float64).square().mean().sqrt()) for some in (output, wide))
            if not wide_size <= _ROUNDING * size < float("inf"):
                return None
            shares.append(wide_size / size if size else 0.0)
            largest = max(largest, size)
    figures = f"{largest:.1e} in root mean square, and {max(shares):.1e} times that in float64"
    return f"the output is zero but for rounding errors, whatever the inputs and weights: {figures}"


def _find_tiny(calls: Sequence[Call], previous: Sequence[Call], by_inputs: Cheat) -> AuditFinding | None:
    """A finding if outputs vary so little that other outputs, or a constant, pass for them."""
    pairs = list(zip(calls, previous, strict=True))
    zeros = Cheat(call.compare([torch.zeros_like(output) for output in call.expected]) for call in calls)
    means = Cheat(call.compare([_filled_with_mean(output) for output in before.expected]) for call, before in pairs)
    cheats = {"zeros pass": zeros, "a constant passes": means, "other inputs' passes": by_inputs}
    for words, cheat in cheats.items():
        if cheat.passes:
            return _finding(FindingKind.TINY, f"the output hardly varies: {words} for it", cheat)
    return None


def _other_weights(reference: ReferenceCalls, other: nn.Module, by_weights: Cheat) -> Cheat | None:
    """How the outputs of other weights compare: weights of another seed, as given in `by_weights`, or, if every seed
    draws the same weights, changed ones. Changes `other` in the second case. None without parameters."""
    parameters = list(zip(reference.model.parameters(), other.parameters(), strict=True))
    if not parameters:
        return None
    if not all(torch.equal(own, drawn) for own, drawn in parameters):
        return by_weights
    with torch.no_grad(), reference.program.seeded(reference.seed):
        for _, parameter in parameters:
            if parameter.is_floating_point():
                parameter.add_(torch.randn_like(parameter) * (0.5 * parameter.square().mean().sqrt() + 0.1))
    return Cheat(call.compare(reference.call_of(other, call).outputs, with_own=True) for call in reference.calls)


def _finding(kind: FindingKind, message: str, cheat: Cheat) -> AuditFinding:
    error, tolerance = max(call.error for call in cheat), min(call.tolerance for call in cheat)
    figures = f"relative error {error:.1e} where {tolerance:.1e} is allowed, in {len(cheat)} calls"
    return AuditFinding(kind, f"{message} ({figures})")


def _filled_with_mean(tensor: Tensor) -> Tensor:
    mean = float(tensor.to(torch.float64).mean())
    return torch.full_like(tensor, mean if is_inexact(tensor.dtype) else round(mean))
