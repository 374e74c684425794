"""The programs of constant policies, which an assessment compares stages with: they need verdicts of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evaluators.guard.copies import is_copy
from evaluators.guard.similarity import similarity
from evaluators.records import Candidate, Verdict
from learners.records import REFERENCE, Rollout
from orchestration.run.state import CONSTANT
from orchestration.step.records import StepResult

REFERENCES, NEAREST_LESSONS = f"{CONSTANT}reference", f"{CONSTANT}nearest_lesson"
"""The phase keys under which their rows are stored."""
_MODEL = re.compile(r"\bModel\b")


def constant_policies(
    tasks: Sequence[str], references: Mapping[str, str], lessons: Iterable[Mapping[str, Any]]
) -> dict[str, list[Candidate]]:
    """The programs of each policy, one for each task, by the phase key under which their rows are stored.

    `references`: by task id. `lessons`: as SFT keeps them in its memory.
    """
    return {
        NEAREST_LESSONS: nearest_lessons(tasks, references, lessons),
        REFERENCES: references_handed_back(tasks, references),
    }


def nearest_lessons(
    tasks: Sequence[str], references: Mapping[str, str], lessons: Iterable[Mapping[str, Any]]
) -> list[Candidate]:
    """For each task, the fastest lesson of the task whose reference is most like its own, handed over as it is.

    A task that has lessons is most like itself. A policy that only looks lessons up would answer so: on a task without
    lessons, the program is nearly always wrong. `references`: the references of all tasks, by task id. `lessons`: as
    SFT keeps them in its memory. Without lessons there are none.
    """
    best: dict[str, Mapping[str, Any]] = {}
    for lesson in lessons:
        known = best.get(lesson["task_id"])
        if known is None or (lesson["speedup"] or 0.0) > (known["speedup"] or 0.0):
            best[lesson["task_id"]] = lesson
    taught = sorted(task for task in best if task in references)
    if not taught:
        return []

    def nearest(task: str) -> str:
        if task in best:
            return task
        return max(taught, key=lambda other: similarity(references[task], references[other]))

    return [Candidate.propose(task, best[nearest(task)]["source"], "constant:nearest_lesson") for task in tasks]


def references_handed_back(tasks: Sequence[str], references: Mapping[str, str]) -> list[Candidate]:
    """Each task's reference as a program for it. `references`: by task id."""
    return [Candidate.propose(task, _MODEL.sub("ModelNew", references[task]), "constant:reference") for task in tasks]


def as_step(
    candidates: Sequence[Candidate], verdicts: Mapping[str, Verdict], references: Mapping[str, str]
) -> StepResult:
    """Candidates and their verdicts in the form of a step, one rollout for each. A rollout has no text, since the
    programs are teachers'."""
    result = StepResult()
    for candidate in candidates:
        verdict = verdicts[candidate.digest]
        result.candidates[candidate.digest], result.verdicts[candidate.digest] = candidate, verdict
        copy_of = REFERENCE if is_copy(candidate.source, references[candidate.task_id]) else ""
        result.rollouts.append(
            Rollout(
                candidate.task_id, candidate.task_id, "", "", (), (), (), 0,
                candidate_digest=candidate.digest, outcome=str(verdict.outcome), copy_of=copy_of,
                fastest_shown=1.0, shown_speedups=(),
            )
        )  # fmt: skip
    return result
