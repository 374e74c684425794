"""One evaluator for all tests of evaluation. Its limits are short, so that a program that hangs costs seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from configs.schema import LimitsConfig
from evaluators.evaluator import Evaluator

LIMITS = LimitsConfig(
    start_seconds=4.0, call_seconds=2.0, build_seconds=120.0, memory_gib=1.0, gpu_memory_gib=4.0, output_mib=16.0
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
