"""A builder as a Ray actor: it compiles candidates, so that no measuring slot waits for a compiler.

It may also run them once, on a CPU, so that no GPU is used for a program that fails anywhere. A builder on the
evaluators' GPU runs them there, too, but only while nothing is measured.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import ray

from actors.evaluation import BuildRequest
from actors.evaluator import make_evaluator
from actors.log_fields import log_fields, name_role
from actors.managed import Managed
from configs.schema import EvaluatorConfig
from evaluators.compile.builder import Builder
from evaluators.compile.cache import BuildCache
from evaluators.compile.hints import needs_build
from evaluators.failures import Unbuilt
from evaluators.host.open_device import open_device
from evaluators.judge.cpu_look import CpuLook
from evaluators.records import Artifact, BuildError, Verdict

_log = logging.getLogger(__name__)


@ray.remote(num_cpus=1)
class BuilderActor(Managed):
    """Holds one `Builder` over the store that all builders and evaluators of the run share."""

    def __init__(
        self,
        config: EvaluatorConfig,
        store: str,
        guarded: bool = True,
        looks: bool = False,
        right_programs: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`looks`: it shares a GPU with evaluators, and runs each candidate once after it is built. `right_programs`:
        by task, for a look at each candidate on a CPU (`CpuLook`); None: there is no such look."""
        name_role("builder", arch=config.arch)
        # It compiles for a GPU without opening one: a node's GPUs belong to the evaluators.
        device = open_device("cpu", threads=config.threads) if config.arch == "cpu" else config.arch
        cache = BuildCache.of(Path(store), config)
        self._builder = Builder(
            device,
            Path(store),
            config.limits,
            cache=cache,
            capability=config.capability,
            require_containment=config.require_containment,
        )
        self._builder.start()
        right = right_programs or {}
        self._cpu_look = (
            None
            if right_programs is None
            else CpuLook(
                self._builder,
                lambda task: right.get(task, ()),
                guarded=guarded,
                strict=config.strict,
                compares_values=config.cpu_look_values,
            )
        )
        self._evaluator = make_evaluator(config, store, guarded=guarded) if looks else None
        if self._evaluator:
            self._evaluator.start()

    def prepare(self, request: BuildRequest) -> Artifact | BuildError | Verdict | Unbuilt | None:
        """Looks at a candidate on a CPU, builds it, and looks at it on its device, as far as this builder does.

        Returns the artifact (None: the candidate compiles nothing), the reason why it does not compile, the verdict if
        a look is enough for one, or what the candidate turned out to lack.
        """
        with log_fields(candidate=request.candidate.digest, task=request.task.id, **request.log_fields):
            prepared = self._prepare(request)
            _log.info("prepared: %s", "nothing to build" if prepared is None else type(prepared).__name__)
            return prepared

    def _prepare(self, request: BuildRequest) -> Artifact | BuildError | Verdict | Unbuilt | None:
        is_new = not (request.again or request.extensions or request.evictions)
        if self._cpu_look and is_new:
            verdict = self._cpu_look.look(request.task, request.candidate.source, preset=request.preset)
            if verdict is not None:
                return verdict
        built = self._build(request)
        if self._evaluator is None or isinstance(built, BuildError):
            return built
        source = request.candidate.source
        try:
            verdict = self._evaluator.look(
                request.task, source, preset=request.preset, artifact=built, again=request.again
            )
        except Unbuilt as missing:
            return missing
        return built if verdict is None else verdict

    def _build(self, request: BuildRequest) -> Artifact | BuildError | None:
        if not needs_build(request.candidate.source):
            return None
        return self._builder.build(request.task, request.candidate, request.extensions)
