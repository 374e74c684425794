"""Audits many tasks in one process, at sizes that the caller gives: for tasks of our own making, which can be trusted.

A finding of one draw is enough to drop a task, so nothing is confirmed by further draws (`evaluators.audit.probe`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from evaluators.audit.calls import ReferenceCalls
from evaluators.audit.probe import findings_of
from evaluators.records import Task
from evaluators.tasks import ProgramError

_OWN_DRAWS = 3  # calls on the task's own inputs come first (`ReferenceCalls.calls`)


def reason_to_drop(task: Task, sizes: Sequence[Mapping[str, int]], seed: int) -> str:
    """Why a task cannot tell a good program from a cheat, or cannot be judged; empty if nothing was found.

    `sizes`: overrides by name; the task is audited at each. The reason is the kinds of the findings, `not finite`,
    `float64 differs` (the reference, in single precision, is not explained by its own form in float64) or `fails`.
    """
    for overrides in sizes:
        try:
            reference = ReferenceCalls(task.with_sizes(**overrides), seed)
            own = reference.calls[:_OWN_DRAWS]
            if not all(bool(torch.isfinite(output).all()) for call in own for output in call.outputs):
                return "not finite"
            single = all(output.dtype == torch.float32 for output in own[0].outputs)
            if single and not all(call.has_known_errors for call in own):
                return "float64 differs"
            if findings := findings_of(reference):
                return " ".join(dict.fromkeys(str(finding.kind) for finding in findings))
        except (ProgramError, MemoryError):
            return "fails"
    return ""
