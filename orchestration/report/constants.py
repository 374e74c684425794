"""Policies that give one program for each task, whatever they are asked. A stage that learnt something beats them.

The reference handed back; the reference under `torch.compile`; and the best lesson of the nearest task, handed over as
it is. The first two follow from the verdicts of the run. The third needs verdicts of its own, which
`assessment.constant_policies` asks for (`orchestration.step.constants`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evaluators.records import Outcome
from learners.records import REFERENCE
from orchestration.report.statistics import AssessmentRow

ITSELF, UNDER_COMPILE, NEAREST = "reference", "torch.compile", "nearest lesson"
"""The names of the policies."""
COMPILED = "torch_compile"

Speedups = Mapping[str, Mapping[str, float]]
"""Of baselines over eager, by task."""


def constant_rows(
    tasks: Sequence[str], baselines: Speedups, lessons: Sequence[AssessmentRow], names: Sequence[str]
) -> dict[str, list[AssessmentRow]]:
    """A row per task for each constant policy, by its name. A policy without any row is left out.

    A task without a right program in the whole run has no known baselines, and then no row but the reference's, which
    says nothing of the best baseline. `names`: the baselines of the run. Whether a compiled reference is a copy is not
    asked.
    """
    known = [task for task in tasks if len(baselines.get(task, {})) > 1]
    reference = [_row(task, 1.0, baselines.get(task, {}), names, copy_of=REFERENCE) for task in tasks]
    compiled = [
        _row(task, baselines[task][COMPILED], baselines[task], names, copy_of=None)
        for task in known
        if COMPILED in baselines[task]
    ]
    of_tasks = [row for row in lessons if row.task_id in set(tasks)]
    policies = {ITSELF: reference, UNDER_COMPILE: compiled, NEAREST: of_tasks}
    return {name: rows for name, rows in policies.items() if rows}


def _row(
    task: str, over_eager: float, baselines: Mapping[str, float], names: Sequence[str], *, copy_of: str | None
) -> AssessmentRow:
    """The row of a program that is right on a task, from its speed-up over eager and that of the baselines."""
    speedups = {name: over_eager / value for name, value in baselines.items()} or {"eager": over_eager}
    has_best = len(names) == 1 or len(speedups) > 1
    return AssessmentRow(task, str(Outcome.OK), speedups, copy_of=copy_of, has_best=has_best)
