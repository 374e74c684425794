"""A candidate whose artifact was evicted while it waited to be judged goes back to a builder, and never without end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from actors.evaluator import EvaluatorActor
from actors.pool import ActorPool
from configs.schema import EvaluatorConfig, GuardConfig, RolloutConfig
from evaluators.failures import EVICTED, MOST_EVICTIONS
from evaluators.guard.cases import HackCases
from evaluators.records import Candidate, Outcome
from orchestration.step.pipeline import Pipeline
from orchestration.step.review import Reviewer
from tests.orchestration.step.scripted import RIGHT, SOFTMAX, Engine

SOURCE = f"import torch  # torch.compile\n{RIGHT}"


def losing_builder_class() -> Any:
    """A local class, which Ray sends by value."""

    @ray.remote(num_cpus=0)
    class LosingBuilder:
        """A builder whose first artifacts are evicted as soon as they are built. It logs each build in a file."""

        def __init__(self, store: str, losses: int) -> None:
            from configs.schema import LimitsConfig
            from evaluators.compile.builder import Builder
            from evaluators.host.cpu_device import CpuDevice

            self.builder = Builder(CpuDevice(), Path(store), LimitsConfig())
            self.log, self.losses = Path(store) / "builds", losses

        def ping(self) -> str:
            return "pong"

        def apply(self, func: Callable[..., Any], *arguments: Any) -> Any:
            return func(self, *arguments)

        def prepare(self, request: Any) -> Any:
            built = self.builder.build(request.task, request.candidate, request.extensions)
            with open(self.log, "a") as log:
                print(request.evictions, file=log)
            if self.losses:
                self.losses -= 1
                self.builder.artifacts.shrink(0)
            return built

    return LosingBuilder


LosingBuilder = losing_builder_class()


@pytest.fixture
def judged(local_ray: None, tmp_path: Path) -> Iterator[Callable[[int], Any]]:
    """The verdict on the program, and the log of its builds, by the number of artifacts that are evicted."""
    pools: list[ActorPool] = []

    def judge(losses: int) -> tuple[Any, list[int]]:
        store = str(tmp_path)
        pools.append(ActorPool("rollout", lambda _: Engine.remote({}), 1, timeout=30.0))
        pools.append(ActorPool("builder", lambda _: LosingBuilder.remote(store, losses), 1, timeout=120.0))
        pools.append(ActorPool("evaluator", lambda _: EvaluatorActor.remote(EvaluatorConfig(), store), 1, timeout=120))
        reviewer = Reviewer(GuardConfig(), HackCases(tmp_path / "hacks.parquet"), {SOFTMAX.id: SOFTMAX.source})
        pipeline = Pipeline([SOFTMAX], *pools, RolloutConfig(), reviewer)
        candidate = Candidate.propose(SOFTMAX.id, SOURCE, "test")
        verdict = pipeline.evaluate([candidate], "fast")[candidate.digest]
        return verdict, [int(line) for line in (tmp_path / "builds").read_text().split()]

    yield judge
    for pool in pools:
        pool.stop()


@pytest.mark.slow
def test_a_candidate_without_its_artifact_is_built_again(judged: Callable[[int], Any]) -> None:
    verdict, builds = judged(2)
    assert verdict.outcome in (Outcome.OK, Outcome.SUSPECT), verdict.message  # a busy machine may doubt times
    assert builds == [0, 1, 2]


@pytest.mark.slow
def test_a_candidate_whose_artifacts_never_stay_ends_in_a_verdict(judged: Callable[[int], Any]) -> None:
    verdict, builds = judged(100)
    assert verdict.outcome is Outcome.INFRA
    assert verdict.message == EVICTED
    assert builds == list(range(MOST_EVICTIONS + 1))
