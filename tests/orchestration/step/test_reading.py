"""Metrics say how answers use what they were shown and taught."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluators.records import Candidate
from learners.records import Rollout
from orchestration.step.reading import Lessons, lessons_of, reading

ANALYSIS = "The reference reads its input from memory once for every single step of the softmax"
LESSON = {"task_id": "t", "source": "x = 1", "analysis": ANALYSIS, "design": ""}


def answer(analysis: str, shown: tuple[float, ...] | None = (), source: str = "", outcome: str = "ok") -> Rollout:
    text = f"## Performance Analysis\n{analysis}\n## Algorithm Design\n1. Fuse.\n"
    digest = Candidate.propose("t", source, "").digest if source else None
    return Rollout(
        "t", "t", "", text, (1,), (2,), (-1.0,), 0, candidate_digest=digest, outcome=outcome, shown_speedups=shown
    )


def test_answers_to_contrastive_prompts_are_read_for_exemplars_and_speeds() -> None:
    rollouts = [
        answer("Implementation 2 at 1.52x fuses what implementation 1 does not.", (1.0, 1.518)),
        answer("Implementation 3 is at 9.99x.", (1.0, 1.518)),
        answer(ANALYSIS, (1.0, 1.518)),
        answer("Implementation 1 takes 1.5x.", ()),  # a one-shot prompt shows nothing
    ]
    metrics = reading(rollouts, Lessons([LESSON]))
    assert metrics["contrastive/answers"] == 3.0
    assert metrics["contrastive/names_exemplar"] == metrics["contrastive/names_speed"] == pytest.approx(1 / 3)
    assert metrics["contrastive/lesson_text"] == pytest.approx(1 / 3)
    assert metrics["lesson_text"] == pytest.approx(1 / 4)


def test_one_shot_answers_have_no_contrastive_metrics_and_rows_of_older_runs_neither() -> None:
    for shown in ((), None):
        assert not [name for name in reading([answer("A text.", shown)], Lessons()) if name.startswith("contrastive")]
    assert reading([], Lessons()) == {}


def test_only_right_programs_of_lessons_count_as_lessons() -> None:
    memory = {"1-sft": {"lessons": [LESSON]}, "2-sft": {}}
    lessons = lessons_of(lambda key: memory[key], ["1-sft", "2-sft"])
    lesson = answer("A text.", source="x = 1  # the same program")
    rollouts = [lesson, answer("A text.", source="x = 2"), replace(lesson, outcome="suspect"), answer("A text.")]
    assert reading(rollouts, lessons)["lesson_rate"] == 0.25
