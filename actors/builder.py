"""A builder as a Ray actor: compiles candidates on a CPU, so that no measuring slot waits for a compiler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import ray
from ray.rllib.utils.actor_manager import FaultAwareApply

from configs.schema import EvaluatorConfig
from evaluators.build import Builder
from evaluators.device import open_device
from evaluators.records import Artifact, BuildError, Candidate, Task


@dataclass(frozen=True)
class BuildRequest:
    """A candidate to be compiled for a task's sizes."""

    task: Task
    candidate: Candidate


@ray.remote(num_cpus=1)
class BuilderActor(FaultAwareApply):
    """Holds one `Builder` over the store that all builders and evaluators of the run share."""

    def __init__(self, config: EvaluatorConfig, store: str) -> None:
        self._builder = Builder(open_device(config.arch, threads=config.threads), Path(store), config.limits)

    def build(self, request: BuildRequest) -> Artifact | BuildError:
        """The artifact, or why the candidate does not compile."""
        return self._builder.build(request.task, request.candidate)
