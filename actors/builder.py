"""A builder as a Ray actor: compiles candidates, so that no measuring slot waits for a compiler, and, where it stands
on the evaluators' GPU, sees them run while nothing is measured there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import ray
from ray.rllib.utils.actor_manager import FaultAwareApply

from actors.evaluator import evaluator_of
from configs.schema import EvaluatorConfig
from evaluators.compile.builder import Builder
from evaluators.compile.cache import BuildCache
from evaluators.compile.hints import needs_build
from evaluators.failures import Unbuilt
from evaluators.host.open_device import open_device
from evaluators.records import Artifact, BuildError, Candidate, Task, Verdict
from evaluators.shared.extension import ExtensionRequest


@dataclass(frozen=True)
class BuildRequest:
    """A candidate to be compiled for a task's sizes, with the extensions that it was seen to ask for as it ran, and the
    preset that it is to be judged at."""

    task: Task
    candidate: Candidate
    also: tuple[ExtensionRequest, ...] = ()
    preset: str = "fast"


@ray.remote(num_cpus=1)
class BuilderActor(FaultAwareApply):
    """Holds one `Builder` over the store that all builders and evaluators of the run share."""

    def __init__(self, config: EvaluatorConfig, store: str, guarded: bool = True, looks: bool = False) -> None:
        """`looks`: it stands where candidates are judged, and runs them once when they are built."""
        # For a GPU it compiles where there is none: a node's GPUs are the evaluators'.
        device = open_device("cpu", threads=config.threads) if config.arch == "cpu" else config.arch
        cache = BuildCache.of(Path(store), config)
        self._builder = Builder(device, Path(store), config.limits, cache=cache, capability=config.capability)
        self._evaluator = evaluator_of(config, store, guarded=guarded) if looks else None
        if self._evaluator:
            self._evaluator.start()

    def build(self, request: BuildRequest) -> Artifact | BuildError | None:
        """The artifact (None: it compiles nothing), or why the candidate does not compile."""
        if not needs_build(request.candidate.source):
            return None
        return self._builder.build(request.task, request.candidate, request.also)

    def prepare(self, request: BuildRequest) -> Artifact | BuildError | Verdict | Unbuilt | None:
        """What `build` gives, and the verdict instead where a look at the candidate is enough for one; or the extension
        that it turned out to lack."""
        built = self.build(request)
        if self._evaluator is None or isinstance(built, BuildError):
            return built
        source = request.candidate.source
        try:
            verdict = self._evaluator.look(request.task, source, preset=request.preset, artifact=built)
        except Unbuilt as missing:
            return missing
        return built if verdict is None else verdict
