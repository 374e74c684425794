"""Mistakes in bundled programs, judged by a real evaluator: what is learnt as a failure is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from evaluators.evaluator import Evaluator
from evaluators.records import Candidate, Outcome, Verdict
from evaluators.tasks.loader import load_variants
from orchestration.step.lessons import REPAIRABLE, broken_lessons, verified_repairs
from tests.orchestration.step.scripted import GELU, SOFTMAX

TASKS = {task.id: task for task in (SOFTMAX, GELU)}


@pytest.mark.slow
def test_mistakes_fail_and_the_judge_says_how(tmp_path: Path) -> None:
    lessons = [
        {"task_id": task_id, "source": variant.source, "analysis": "", "design": "", "speedup": 2.0}
        for task_id in TASKS
        for variant in load_variants(task_id)
        if variant.expect == "faster" and "load_inline" not in variant.source
    ]
    broken = broken_lessons(lessons, 1.0, np.random.default_rng(0))
    judged: dict[str, Verdict] = {}
    with Evaluator(arch="cpu", store=tmp_path) as evaluator:

        def evaluate(candidates: Sequence[Candidate]) -> Mapping[str, Verdict]:
            for one in candidates:
                judged[one.digest] = evaluator.evaluate(TASKS[one.task_id], one.source)
            return judged

        repairs, failing, _ = verified_repairs(broken, evaluate, np.random.default_rng(0))
    failures = Counter(verdict.outcome for verdict in judged.values())
    assert sum(count for outcome, count in failures.items() if outcome in REPAIRABLE) == len(repairs)
    assert len(repairs) > 0.7 * len(broken), failures
    assert {Outcome.RUNTIME_ERROR, Outcome.WRONG} <= failures.keys()
    for repair, candidate in zip(repairs, failing.values(), strict=True):
        assert repair["broken"] == candidate.source
        assert repair["message"] == judged[candidate.digest].message
        if candidate.author.endswith("/forgotten_import"):
            assert "is not defined" in repair["message"]
