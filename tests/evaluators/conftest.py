"""One evaluator for all tests of evaluation: short limits, so that what hangs costs seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from configs.schema import LimitsConfig
from evaluators.evaluator import Evaluator

LIMITS = LimitsConfig(start_seconds=4.0, call_seconds=2.0, build_seconds=120.0, memory_gib=1.0, output_mib=16.0)


@pytest.fixture(scope="session")
def limits() -> LimitsConfig:
    return LIMITS


@pytest.fixture(scope="session")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(arch="cpu", limits=LIMITS) as made:
        made.start()
        yield made
