"""One evaluator for all tests of evaluation. Its limits are short, so that a program that hangs costs seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from configs.schema import LimitsConfig
from evaluators.evaluator import Evaluator
from evaluators.records import Outcome, Task, Verdict

LIMITS = LimitsConfig(
    start_seconds=4.0, call_seconds=2.0, build_seconds=120.0, memory_gib=1.0, gpu_memory_gib=4.0, output_mib=16.0
)


@pytest.fixture(scope="session")
def limits() -> LimitsConfig:
    return LIMITS


OF_TIMES = {"clocks", "bursts", "neighbours"}
"""Kinds of findings that load on the machine can cause."""


class PatientEvaluator(Evaluator):
    """Judges a program again, twice at most, if it is doubted for its times alone: other tests load the machine."""

    def evaluate(self, task: Task | str, source: str, **options: Any) -> Verdict:
        for _ in range(3):
            verdict = super().evaluate(task, source, **options)
            if verdict.outcome is not Outcome.SUSPECT or {finding.kind for finding in verdict.deciding} - OF_TIMES:
                break
            self._verdicts = {key: kept for key, kept in self._verdicts.items() if kept is not verdict}
        return verdict


@pytest.fixture(scope="session", params=["cpu", pytest.param("auto", marks=pytest.mark.cuda, id="cuda")])
def evaluator(request) -> Iterator[Evaluator]:
    """An evaluator for the CPU, and one for the GPU if there is one: the same tests hold for both."""
    with PatientEvaluator(arch=request.param, limits=LIMITS) as made:
        made.start()
        yield made
