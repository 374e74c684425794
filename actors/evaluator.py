"""An evaluator as a Ray actor: one measuring slot of one host, one verdict at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import ray
from ray.rllib.utils.actor_manager import FaultAwareApply

from configs.schema import EvaluatorConfig
from evaluators.compile.cache import BuildCache
from evaluators.evaluator import Evaluator
from evaluators.failures import Unbuilt
from evaluators.records import Artifact, BuildError, Candidate, Task, Verdict
from evaluators.shared.extension import ExtensionRequest


@dataclass(frozen=True)
class EvaluationRequest:
    """A candidate to be judged at a preset, with what a builder made of it (None: it compiles nothing), the extensions
    that it had asked for in vain as it ran, and whether a builder's look found no failure."""

    task: Task
    candidate: Candidate
    preset: str
    artifact: Artifact | BuildError | None = None
    also: tuple[ExtensionRequest, ...] = ()
    passed_look: bool = False


def evaluator_of(config: EvaluatorConfig, store: str, *, guarded: bool = True) -> Evaluator:
    """The evaluator of a run, which leaves it to others to build what candidates ask for."""
    return Evaluator(
        config.arch,
        preset=config.preset,
        threads=config.threads,
        baselines=config.baselines,
        limits=config.limits,
        require_shapes=config.require_shapes,
        store=Path(store),
        cache=BuildCache.of(Path(store), config),
        builds=False,
        guarded=guarded,
        verdicts_of=config.verdicts_of,
    )


@ray.remote(num_cpus=1)
class EvaluatorActor(FaultAwareApply):
    """Holds one `Evaluator`, whose processes end with it."""

    def __init__(self, config: EvaluatorConfig, store: str, guarded: bool = True) -> None:
        self._evaluator = evaluator_of(config, store, guarded=guarded)
        self._evaluator.start()

    def evaluate(self, request: EvaluationRequest) -> Verdict | Unbuilt:
        """Judges one candidate, or says what it lacks; never raises for anything that it does."""
        candidate = request.candidate
        try:
            return self._evaluator.evaluate(
                request.task,
                candidate.source,
                preset=request.preset,
                author=candidate.author,
                artifact=request.artifact,
                passed_look=request.passed_look,
            )
        except Unbuilt as missing:
            return missing
