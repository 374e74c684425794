"""The builders and the evaluators of one architecture: a pool each, with a queue each.

An evaluator opens the GPU that it was given, and refuses to start on one of another type than its pool's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from actors.builder import BuilderActor
from actors.evaluator import EvaluatorActor
from actors.pool import ActorPool
from actors.start import start_actor
from configs.load import ConfigError
from configs.schema import EvaluatorConfig
from configs.waits import POOL_START_SECONDS
from evaluators.compile.builder import CAPABILITIES
from orchestration.fleet.capacity import shortage
from orchestration.fleet.placement import BUILDER, EVALUATOR, Placement


def looks_on_cpu(evaluator: EvaluatorConfig) -> bool:
    """Whether builders look at candidates on a CPU before anything else is done with them (`evaluator.cpu_look`)."""
    return evaluator.cpu_look == "always" or (evaluator.cpu_look == "auto" and evaluator.arch != "cpu")


def confirms_jumps(evaluator: EvaluatorConfig) -> bool:
    """Whether a second device has to confirm speed-ups that jump (`evaluator.confirm_jumps`)."""
    has_second = evaluator.arch != "cpu" and evaluator.workers > 1
    return evaluator.confirm_jumps == "always" or (evaluator.confirm_jumps == "auto" and has_second)


def with_absolute_folders(evaluator: EvaluatorConfig) -> EvaluatorConfig:
    """With the folders of earlier verdicts as every process finds them, wherever it runs; URIs are left as they are."""
    earlier = [
        folder if "://" in folder else os.path.abspath(os.path.expanduser(folder)) for folder in evaluator.verdicts_of
    ]
    return replace(evaluator, verdicts_of=earlier)


@dataclass(frozen=True)
class PoolSettings:
    """What the pools of all architectures have in common.

    `store`: the folder that all builders and evaluators share. `guarded`: `guard.enabled`. `ahead`: items that an actor
    is given beyond the one that it works on. `build_seconds`, `evaluation_seconds`: of one item.
    """

    placement: Placement
    store: str
    guarded: bool
    ahead: int
    build_seconds: float
    evaluation_seconds: float


@dataclass(frozen=True)
class ArchPools:
    """The pools of an architecture. `grows`: evaluators start and end with their queue. `workers`: how many there can
    be. `confirms`: a second device has to
    confirm speed-ups that jump (`confirms_jumps`), which nobody asks for without the guard."""

    builders: ActorPool
    evaluators: ActorPool
    grows: bool
    workers: int
    confirms: bool = False

    @property
    def wanted_evaluators(self) -> int:
        """Evaluators that programs need, those included that are being built: one each, up to `workers`. For any
        thread."""
        return min(self.evaluators.pending + self.builders.pending, self.workers)

    def wait_ready(self) -> None:
        """Returns once all actors are ready. Raises PoolExhausted or TimeoutError."""
        self.builders.wait_ready()
        self.evaluators.wait_ready()


def require_capability(config: EvaluatorConfig, key: str = "evaluator.capability") -> None:
    """Raises ConfigError if nobody says what to build for on an architecture."""
    if config.arch != "cpu" and not (config.capability or config.arch in CAPABILITIES):
        raise ConfigError(f"{key} must say the compute capability of {config.arch}, which is not known here")


def make_arch_pools(
    config: EvaluatorConfig,
    settings: PoolSettings,
    *,
    further: str = "",
    idle_minutes: float = 0.0,
    looks: bool = False,
    right_programs: Mapping[str, Sequence[str]] | None = None,
) -> ArchPools:
    """Starts the pools of `config.arch`.

    `further`: its name, if it is one of `evaluation.archs`, and `idle_minutes`: that key of it. `looks`,
    `right_programs`: of its builders, see `BuilderActor`.
    """
    lacking = partial(shortage, settings.placement.type_of(EVALUATOR, further))
    suffix = f" {further}" if further else ""
    place = partial(settings.placement.options, arch=further)
    builders = ActorPool(
        f"builder{suffix}",
        lambda index: start_actor(
            BuilderActor,
            place(BUILDER, index),
            config,
            settings.store,
            settings.guarded,
            looks,
            right_programs,
        ),
        config.builders,
        ahead=settings.ahead,
        timeout=settings.build_seconds,
        start_timeout=POOL_START_SECONDS,
    )
    evaluators = ActorPool(
        f"evaluator{suffix}",
        lambda index: start_actor(
            EvaluatorActor, place(EVALUATOR, index), config, settings.store, settings.guarded, index
        ),
        config.workers,
        ahead=settings.ahead,
        timeout=settings.evaluation_seconds,
        start_timeout=POOL_START_SECONDS,
        idle_seconds=60.0 * idle_minutes,
        shortage=(lambda _: "") if config.arch == "cpu" else lacking,
    )
    confirms = settings.guarded and confirms_jumps(config)
    return ArchPools(builders, evaluators, idle_minutes > 0, config.workers, confirms)
