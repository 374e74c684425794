"""A builder as a Ray actor: compiles candidates on a CPU, so that no measuring slot waits for a compiler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import ray
from ray.rllib.utils.actor_manager import FaultAwareApply

from configs.schema import EvaluatorConfig
from evaluators.build.builder import Builder
from evaluators.build.cache import BuildCache
from evaluators.build.extension import ExtensionRequest
from evaluators.device import open_device
from evaluators.records import Artifact, BuildError, Candidate, Task


@dataclass(frozen=True)
class BuildRequest:
    """A candidate to be compiled for a task's sizes, with the extensions that it was seen to ask for as it ran, and the
    preset that it is to be judged at, which the sender alone needs."""

    task: Task
    candidate: Candidate
    also: tuple[ExtensionRequest, ...] = ()
    preset: str = "fast"


@ray.remote(num_cpus=1)
class BuilderActor(FaultAwareApply):
    """Holds one `Builder` over the store that all builders and evaluators of the run share."""

    def __init__(self, config: EvaluatorConfig, store: str) -> None:
        # For a GPU it compiles where there is none: a node's GPUs are the evaluators'.
        device = open_device("cpu", threads=config.threads) if config.arch == "cpu" else config.arch
        cache = BuildCache.of(Path(store), config)
        self._builder = Builder(device, Path(store), config.limits, cache=cache, capability=config.capability)

    def build(self, request: BuildRequest) -> Artifact | BuildError:
        """The artifact, or why the candidate does not compile."""
        return self._builder.build(request.task, request.candidate, request.also)
