"""The actors of one run, each in its place: rollout engines, builders, evaluators, learner."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ray

from actors.builder import BuilderActor
from actors.engine_calls import CONTROL, requests_at_once
from actors.evaluator import EvaluatorActor
from actors.learner import LearnerGroup, RankDied
from actors.log_fields import JsonLogs
from actors.pool import ActorPool
from actors.rollout import RolloutEngine
from actors.start import start_actor
from configs.load import ConfigError
from configs.schema import RunConfig
from configs.waits import POOL_START_SECONDS, STARTS, build_seconds, evaluation_seconds
from evaluators.compile.builder import CAPABILITIES
from evaluators.judge.cpu_look import right_programs
from evaluators.tasks import profile_of
from orchestration.fleet.placement import BUILDER, ENGINE, EVALUATOR, LEARNER, Placement
from orchestration.fleet.ray_cluster import connect
from orchestration.fleet.ray_metrics import BusyShares, RoleFigures, figures_of_pool
from orchestration.fleet.turns import Turns
from orchestration.fleet.weight_push import Waiter, WeightPush, rank_of_adapters
from orchestration.run.directory import RunDirectory

_log = logging.getLogger(__name__)


class Roles:
    """Starts the actors, each in its place, and gives the learner's weights to the engines, restarted ones included.

    `store`: the folder that all builders and evaluators share. `version`: the policy version that the engines have.
    """

    def __init__(self, config: RunConfig, policy: str, run: RunDirectory) -> None:
        """`policy`: the folder of the policy that the run begins with."""
        self._config = config
        self._policy = policy
        self.store = str(run.store_of(config))
        earlier = [
            folder if "://" in folder else os.path.abspath(os.path.expanduser(folder))
            for folder in config.evaluator.verdicts_of
        ]
        self._evaluator = replace(config.evaluator, verdicts_of=earlier)
        self._placement = Placement(config)
        self._pushed = self._started = False
        self._shares = BusyShares()
        self.version = 0

    @property
    def looks_on_cpu(self) -> bool:
        """Whether builders look at candidates on a CPU before anything else is done with them."""
        evaluator = self._config.evaluator
        return evaluator.cpu_look == "always" or (evaluator.cpu_look == "auto" and evaluator.arch != "cpu")

    @property
    def _ahead(self) -> int:
        """Candidates that a builder or an evaluator is given beyond the one that it works on. None if roles take turns:
        a turn would have to wait for them."""
        return 0 if self._config.placement.share == "all" else 1

    def start(self) -> None:
        """Starts all roles side by side, since each takes many seconds. Raises ConfigError if one finds no place."""
        config = self._config
        arch = config.evaluator.arch
        if arch != "cpu" and not (config.evaluator.capability or arch in CAPABILITIES):
            raise ConfigError(
                f"evaluator.capability must say the compute capability of {arch}, which is not known here"
            )
        self._own_ray = not ray.is_initialized()
        self._started = True
        actors = config.rollout.engines + config.evaluator.builders + config.evaluator.workers + config.learner.ranks
        self._placement.reserve(grows=connect(config.ray, actors, JsonLogs.of(config)))
        shares = arch != "cpu" and config.placement.share != "none"
        sleeps = shares and config.rollout.sleep
        self.engines = self._make_engines(sleeps=sleeps)
        if shares and (sleeps or config.rollout.engines_per_gpu == 1):
            # vLLM takes its share of the memory that it finds free, unless its size is given. That must not change
            # while it looks.
            self.engines.wait_ready()
        self.builders = self._make_builders()
        self.evaluators = self._make_evaluators()
        if config.evaluator.require_containment:  # a host that cannot give it ends the run before any work
            self.builders.wait_ready()
            self.evaluators.wait_ready()
        self._push = WeightPush(config, self.engines)
        self.turns = Turns(
            self.engines,
            self.evaluators,
            self.builders,
            share=config.placement.share,
            sleeps=sleeps,
            on_learner_rest=lambda: self.learner.release_memory(),
        )
        if shares:
            self.turns.give_to(LEARNER)
        self.learner = self._make_learner()
        self.engines.wait_ready()
        self.utilisation()  # measured from here on

    def _make_engines(self, *, sleeps: bool) -> ActorPool:
        config = self._config
        adapter_rank = rank_of_adapters(config)
        return ActorPool(
            "rollout",
            lambda index: start_actor(
                RolloutEngine,
                {"max_concurrency": requests_at_once(config.rollout), **self._placement.options(ENGINE, index)},
                self._policy,
                config.rollout,
                config.policy,
                config.seed + index,
                self.version,
                sleeps,
                adapter_rank,
            ),
            config.rollout.engines,
            max_in_flight=requests_at_once(config.rollout),
            timeout=config.rollout.timeout,
            start_timeout=config.rollout.start_timeout,
            on_restart=self._give_weights,
            affinity=lambda request: request.group or None,
            control_group=CONTROL,
        )

    def _right_programs(self) -> dict[str, list[str]]:
        """The right programs that come with the tasks, held out or not, by task."""
        config, profile = self._config.tasks, profile_of(self._config.evaluator.arch)
        sources = filter(None, (config.source, config.held_out.source))
        return {task: known for source in sources for task, known in right_programs(source, profile).items()}

    def _make_builders(self) -> ActorPool:
        config = self._config
        looks = config.placement.share == "all"
        right = self._right_programs() if self.looks_on_cpu else None
        return ActorPool(
            "builder",
            lambda index: start_actor(
                BuilderActor,
                self._placement.options(BUILDER, index),
                self._evaluator,
                self.store,
                config.guard.enabled,
                looks,
                right,
            ),
            config.evaluator.builders,
            ahead=self._ahead,
            timeout=build_seconds(config),
            start_timeout=POOL_START_SECONDS,
        )

    def _make_evaluators(self) -> ActorPool:
        config = self._config
        return ActorPool(
            "evaluator",
            lambda index: start_actor(
                EvaluatorActor,
                self._placement.options(EVALUATOR, index),
                self._evaluator,
                self.store,
                config.guard.enabled,
            ),
            config.evaluator.workers,
            ahead=self._ahead,
            timeout=evaluation_seconds(config),
            start_timeout=POOL_START_SECONDS,
        )

    def _make_learner(self, starts: int = STARTS) -> LearnerGroup:
        """A learner whose ranks have started. If one dies as it starts, all start again, `starts` times in all. Raises
        LearnerLost."""
        try:
            return LearnerGroup(self._config, self._policy, lambda rank: self._placement.options(LEARNER, rank))
        except RankDied as error:
            if starts == 1:
                raise
            _log.warning("%s; the learner starts again", error)
        return self._make_learner(starts - 1)

    def restart_learner(self) -> None:
        """Replaces a learner that lost a rank; its weights have to be loaded again.

        Restarted engines wait for them until they are pushed.
        """
        self.engines.members.hold_restarts("the learner is lost, and another starts")
        self.learner.stop()
        self.learner = self._make_learner()

    @contextmanager
    def learner_alone(self) -> Iterator[None]:
        """Within this block, restarted engines get no weights, because the learner works on them."""
        self.engines.members.hold_restarts("the learner works on its weights")
        try:
            yield
        finally:
            self.engines.members.hold_restarts("")

    def push_weights(self, version: int, pipeline: Waiter) -> float:
        """Gives every engine the learner's weights as `version`; returns the seconds that it took.

        Steps under way in the pipeline go on meanwhile, but their responses all come from the weights before.
        """
        self.turns.give_to(ENGINE)
        pipeline.finish_responses()
        started = time.monotonic()
        self.turns.give_to(ENGINE)
        self.version, self._pushed = version, True
        self._push.to_all(self.learner, version, pipeline)
        return time.monotonic() - started

    def _give_weights(self, engine: Any) -> None:
        """Gives a restarted engine the current weights before it generates.

        If the learner has trained since the last push, they are those of the next version. Raises LearnerLost, which
        the engine's pool passes on: the engine then waits for the next learner's push.
        """
        if self._pushed:
            self._push.to_one(self.learner, self.version + int(self.learner.has_trained), engine)

    def utilisation(self) -> dict[str, float]:
        """For each role, the share of the time since the last call in which its actors had work."""
        return {f"utilisation/{role}": share for role, share in self._shares.since_last(self.figures()).items()}

    def figures(self) -> list[RoleFigures]:
        """Every role now. For any thread."""
        arch, ranks = self._config.evaluator.arch, self._config.learner.ranks
        of_pools = (
            ("engines", "", self.engines),
            ("builders", arch, self.builders),
            ("evaluators", arch, self.evaluators),
        )
        learner = self.learner
        return [
            *(figures_of_pool(*each) for each in of_pools),
            RoleFigures("learner", "", 0, 0, ranks, ranks, ranks * learner.busy_seconds),
        ]

    def _pools(self) -> list[ActorPool]:
        """Those that were made so far."""
        return [getattr(self, name) for name in ("engines", "builders", "evaluators") if hasattr(self, name)]

    def moves(self) -> tuple[object, ...]:
        """Something that differs from before whenever a role has moved. For any thread."""
        learner = getattr(self, "learner", None)
        return (*(pool.moves for pool in self._pools()), id(learner), learner and learner.calls_ended)

    def describe(self) -> list[str]:
        """What each role waits for, in words. For any thread."""
        lines = [f"{pool.name}: {pool.describe()}" for pool in self._pools()]
        if hasattr(self, "learner"):
            lines.append(f"learner: {self.learner.describe()}")
        if hasattr(self, "turns") and self.turns.takes_turns:
            lines.append(f"turn on the GPUs: it is that of {self.turns.holder}")
        return lines

    def stop(self) -> None:
        """Ends every actor, and Ray if this run started it."""
        if not self._started:
            return
        for pool in self._pools():
            pool.stop()
        if hasattr(self, "learner"):
            self.learner.stop()
        self._placement.release()
        if self._own_ray:
            ray.shutdown()
