"""An evaluator as a Ray actor: one measuring slot of one host, one verdict at a time."""

from __future__ import annotations

import logging
from pathlib import Path

import ray
from ray.rllib.utils.actor_manager import FaultAwareApply

from actors.evaluation import EvaluationRequest
from actors.log_fields import log_fields, name_role
from configs.schema import EvaluatorConfig
from evaluators.compile.cache import BuildCache
from evaluators.evaluator import Evaluator
from evaluators.failures import Unbuilt
from evaluators.records import Verdict

_log = logging.getLogger(__name__)


def make_evaluator(config: EvaluatorConfig, store: str, *, guarded: bool = True) -> Evaluator:
    """The evaluator of a run. It builds nothing itself: builders do. `store`: the folder that all of them share."""
    return Evaluator(
        config.arch,
        preset=config.preset,
        threads=config.threads,
        baselines=config.baselines,
        limits=config.limits,
        require_shapes=config.require_shapes,
        strict=config.strict,
        require_containment=config.require_containment,
        store=Path(store),
        cache=BuildCache.of(Path(store), config),
        builds=False,
        guarded=guarded,
        verdicts_of=config.verdicts_of,
        measures_baselines=config.measure_baselines == "always",
    )


@ray.remote(num_cpus=1)
class EvaluatorActor(FaultAwareApply):
    """Holds one `Evaluator`, whose processes end with this actor."""

    def __init__(self, config: EvaluatorConfig, store: str, guarded: bool = True) -> None:
        name_role("evaluator", arch=config.arch)
        self._evaluator = make_evaluator(config, store, guarded=guarded)
        self._evaluator.start()

    def versions(self) -> dict[str, str]:
        """The software and hardware that its timings depend on."""
        return dict(self._evaluator.device.versions())

    def evaluate(self, request: EvaluationRequest) -> Verdict | Unbuilt:
        """Judges one candidate, or returns what it lacks: an extension, or its artifact. Never raises for anything a
        candidate does."""
        candidate = request.candidate
        with log_fields(candidate=candidate.digest, task=request.task.id, **request.log_fields):
            try:
                verdict = self._evaluator.evaluate(
                    request.task,
                    candidate.source,
                    preset=request.preset,
                    author=candidate.author,
                    artifact=request.artifact,
                    passed_look=request.passed_look,
                    again=request.again,
                )
            except Unbuilt as missing:
                return missing
            _log.info("judged: %s, in %.1f s", verdict.outcome, verdict.cost.get("total", 0.0))
            return verdict
