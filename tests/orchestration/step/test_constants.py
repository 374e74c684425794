"""Constant policies hand over the reference, and the fastest lesson of the nearest task."""

from __future__ import annotations

from evaluators.guard.copies import is_copy
from evaluators.records import Candidate, Outcome
from evaluators.tasks import load_tasks, program_source
from orchestration.step.constants import NEAREST_LESSONS, REFERENCES, as_step, constant_policies, nearest_lessons
from tests.orchestration.phases.phase_context import judged

TASKS = {task.id: program_source(task) for task in load_tasks("bundled")}


def lesson(task: str, source: str, speedup: float | None) -> dict[str, object]:
    return {"task_id": task, "source": source, "analysis": "", "design": "", "speedup": speedup}


def test_a_task_gets_the_fastest_of_its_own_lessons_and_others_that_of_the_task_most_like_them() -> None:
    lessons = [
        lesson("level1/softmax", "a = 1", 1.5),
        lesson("level1/softmax", "a = 2", 3.0),
        lesson("level1/softmax", "a = 3", None),
        lesson("level3/residual_mlp", "b = 1", 9.0),
        lesson("gone", "c = 1", 99.0),  # no task of this run
    ]
    renamed = TASKS["level1/softmax"].replace("dim", "axis")
    references = {**TASKS, "like_softmax": renamed}
    asked = ["level1/softmax", "level3/residual_mlp", "like_softmax"]
    given = nearest_lessons(asked, references, lessons)
    assert [candidate.source for candidate in given] == ["a = 2", "b = 1", "a = 2"]
    assert [candidate.task_id for candidate in given] == asked
    assert given[0].digest == Candidate.propose("level1/softmax", "a = 2", "").digest, "the lesson word for word"
    assert nearest_lessons(asked, references, []) == []


def test_the_reference_handed_back_is_a_copy_of_every_bundled_task() -> None:
    policies = constant_policies(list(TASKS), TASKS, [])
    assert policies[NEAREST_LESSONS] == []
    handed = policies[REFERENCES]
    assert len(handed) == len(TASKS) > 20
    assert all(is_copy(candidate.source, TASKS[candidate.task_id]) for candidate in handed)
    verdicts = {
        candidate.digest: judged(candidate.task_id, candidate.source, Outcome.OK, 1.0)[1] for candidate in handed
    }
    step = as_step(handed, verdicts, TASKS)
    assert {rollout.copy_of for rollout in step.rollouts} == {"reference"}
    assert {rollout.response for rollout in step.rollouts} == {""}, "a lesson is a teacher's, and is not published"
