"""Pipelines over real pools: scripted engines and builders, and a real evaluator that all tests of a module share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.evaluator import EvaluatorActor
from actors.pool import ActorPool
from configs.schema import EvaluatorConfig, RolloutConfig
from orchestration.step.pipeline import Pipeline
from tests.orchestration.step.scripted import GELU, SHARED, SOFTMAX, TRIANGULAR, Builder, Engine, Script, reviewer


@pytest.fixture(scope="module")
def evaluators(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActorPool]:
    store = str(tmp_path_factory.mktemp("store"))
    pool = ActorPool("evaluator", lambda _: EvaluatorActor.remote(EvaluatorConfig(), store), 1, timeout=120.0)
    yield pool
    pool.stop()


@pytest.fixture
def make_pipeline(evaluators: ActorPool, tmp_path: Path) -> Iterator[Callable[..., Pipeline]]:
    pools = []

    def make(script: Script, store: Path | None = None, **options: Any) -> Pipeline:
        engines = ActorPool("rollout", lambda _: Engine.remote(script), 1, **{"timeout": 30.0, **options})
        builders = ActorPool("builder", lambda _: Builder.remote(fails=True), 1, timeout=30.0)
        pools.extend([engines, builders])
        tasks, judge = [SOFTMAX, GELU, TRIANGULAR], reviewer(tmp_path)
        return Pipeline(tasks, engines, builders, evaluators, RolloutConfig(), judge, store=store)

    yield make
    for pool in pools:
        pool.stop()


@pytest.fixture(scope="module")
def pools(evaluators: ActorPool) -> Iterator[list[ActorPool]]:
    """An engine with four responses at once, a builder that takes half a second, and the evaluator."""
    engines = ActorPool("rollout", lambda _: Engine.remote(SHARED), 1, max_in_flight=4, timeout=60.0)
    builders = ActorPool("builder", lambda _: Builder.remote(seconds=0.5), 1, timeout=30.0)
    engines.wait_ready(60)
    builders.wait_ready(60)
    yield [engines, builders, evaluators]
    engines.stop()
    builders.stop()


@pytest.fixture
def pipeline(pools: list[ActorPool], tmp_path: Path) -> Pipeline:
    """A pipeline without verdicts."""
    return Pipeline([SOFTMAX, GELU], *pools, RolloutConfig(), reviewer(tmp_path))
