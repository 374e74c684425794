"""One evaluator for all tests of evaluation. Its limits are short, so that a program that hangs costs seconds, and it
measures shortly, unless a test looks at times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from configs.schema import LimitsConfig
from evaluators.evaluator import Evaluator
from evaluators.judge.build_then_judge import BuildThenJudge
from evaluators.timing.presets import PRESETS, TimeBudget
from tests.evaluators.patience import patience

_SECONDS = round(4.0 * patience(), 1)
LIMITS = LimitsConfig(
    start_seconds=_SECONDS,
    call_seconds=_SECONDS,
    build_seconds=120.0,
    memory_gib=1.0,
    gpu_memory_gib=4.0,
    output_mib=16.0,
)


@pytest.fixture(autouse=True)
def short_measurements(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict on a CPU takes a third of a second instead of two. Tests marked `measures` are left alone."""
    if request.node.get_closest_marker("measures") is None:
        *criteria, budget = PRESETS["cpu"]["fast"].criteria
        assert isinstance(budget, TimeBudget)
        short = replace(PRESETS["cpu"]["fast"], criteria=(*criteria, replace(budget, seconds=0.05)))
        usual, judge = PRESETS["cpu"]["fast"], BuildThenJudge.judge
        monkeypatch.setattr(  # where all verdicts pass: most evaluators are older than the test that uses them
            BuildThenJudge,
            "judge",
            lambda self, task, candidate, preset, *rest, **options: judge(
                self, task, candidate, short if preset == usual else preset, *rest, **options
            ),
        )


@pytest.fixture(scope="session")
def limits() -> LimitsConfig:
    return LIMITS


@pytest.fixture(scope="session", params=["cpu", pytest.param("auto", marks=pytest.mark.cuda, id="cuda")])
def evaluator(request) -> Iterator[Evaluator]:
    """An evaluator for the CPU, and one for the GPU if there is one: the same tests hold for both."""
    with Evaluator(arch=request.param, limits=LIMITS) as made:
        made.start()
        yield made
