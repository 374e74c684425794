"""The actors of one run, each in its place: rollout engines, builders, evaluators, learner."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ray

from actors.capacity_holder import Room
from actors.engine_calls import CONTROL, requests_at_once
from actors.generation import derive_seed
from actors.learner import LearnerGroup, RankDied
from actors.log_fields import JsonLogs
from actors.pool import ActorPool
from actors.rollout import RolloutEngine
from actors.start import start_actor
from configs.archs import evaluator_on
from configs.frozen import has_engines, learns
from configs.schema import RunConfig
from configs.waits import STARTS, build_seconds, evaluation_seconds
from evaluators.judge.cpu_look import right_programs
from evaluators.tasks import profile_of
from orchestration.fleet.arch_pools import (
    ArchPools,
    PoolSettings,
    looks_on_cpu,
    make_arch_pools,
    require_capability,
    with_absolute_folders,
)
from orchestration.fleet.capacity_requests import CapacityRequests
from orchestration.fleet.placement import ENGINE, EVALUATOR, LEARNER, Placement
from orchestration.fleet.ray_cluster import connect
from orchestration.fleet.ray_metrics import BusyShares, RoleFigures, figures_of_pool
from orchestration.fleet.turns import Turns
from orchestration.fleet.weight_push import Waiter, WeightPush, rank_of_adapters
from orchestration.run.directory import RunDirectory

_log = logging.getLogger(__name__)


class Roles:
    """Starts the actors, each in its place, and gives the learner's weights to the engines, restarted ones included.

    `store`: the folder that all builders and evaluators share. `version`: the policy version that the engines have; of
    a run that learns nothing, how many steps it has taken. `further`: the builders and evaluators of each of
    `evaluation.archs`. `learns`: whether there is a learner. `engines`: None if the run has
    no policy of its own.
    """

    def __init__(self, config: RunConfig, policy: str, run: RunDirectory) -> None:
        """`policy`: the folder of the policy that the run begins with."""
        self._config = config
        self._policy = policy
        self.store = str(run.store_of(config))
        self._evaluator = with_absolute_folders(config.evaluator)
        self._placement = Placement(config)
        self._name = str(run)
        self._requests: CapacityRequests | None = None
        self.learns = learns(config)
        self.engines: ActorPool | None = None
        self._pushed = self._started = False
        self._shares = BusyShares()
        self.version = 0
        self.further: dict[str, ArchPools] = {}

    @property
    def looks_on_cpu(self) -> bool:
        """See the function of that name. Builders of further architectures do not: the first one's have looked, or look
        now."""
        return looks_on_cpu(self._config.evaluator)

    @property
    def _ahead(self) -> int:
        """Candidates that a builder or an evaluator is given beyond the one that it works on. None if roles take turns:
        a turn would have to wait for them."""
        return 0 if self._config.placement.share == "all" else 1

    def start(self) -> None:
        """Starts all roles side by side, since each takes many seconds. Raises ConfigError if one finds no place."""
        config = self._config
        arch, further = config.evaluator.arch, {name: evaluator_on(config, name) for name in config.evaluation.archs}
        require_capability(config.evaluator)
        for name, evaluator in further.items():
            require_capability(evaluator, f"evaluation.archs.{name}.capability")
        self._own_ray = not ray.is_initialized()
        self._started = True
        judging = sum(one.builders + one.workers for one in (config.evaluator, *further.values()))
        engines = config.rollout.engines if has_engines(config) else 0
        actors = engines + judging + (config.learner.ranks if self.learns else 0)
        grows = connect(config.ray, actors, JsonLogs.of(config))
        if grows and config.ray.request_capacity:
            self._requests = CapacityRequests(self._name, self.rooms)
            self._requests.start()
        self._placement.reserve(grows=grows)
        shares = arch != "cpu" and config.placement.share != "none"
        sleeps = shares and config.rollout.sleep
        if has_engines(config):
            self.engines = self._make_engines(sleeps=sleeps)
            if shares and (sleeps or config.rollout.engines_per_gpu == 1):
                # vLLM takes its share of the memory that it finds free, unless its size is given. That must not change
                # while it looks.
                self.engines.wait_ready()
        first = self._make_pools()
        self.builders, self.evaluators = first.builders, first.evaluators
        self.confirms_jumps = first.confirms
        for name in further:
            self.further[name] = self._make_pools(name)
        if config.evaluator.require_containment:  # a host that cannot give it ends the run before any work
            for pools in (first, *self.further.values()):
                pools.wait_ready()
        self.turns = Turns(
            self.engines,
            self.evaluators,
            self.builders,
            share=config.placement.share,
            sleeps=sleeps,
            on_learner_rest=lambda: self.learner.release_memory() if self.learns else None,
        )
        if self.learns and self.engines is not None:
            self._push = WeightPush(config, self.engines)
            if shares:
                self.turns.give_to(LEARNER)
            self.learner = self._make_learner()
        if self.engines is not None:
            self.engines.wait_ready()
        self._placement.refuse_absent()  # again: by now an autoscaler knows what it cannot give
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
                self._engine_seed(index),
                self.version if self.learns else 0,
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

    def _engine_seed(self, index: int) -> int:
        """The seed of an engine that starts now. A push of weights sets it anew. Without a learner there is none, and
        an engine of a later process must not sample again what the first one sampled."""
        seed = self._config.seed + index
        return seed if self.learns else derive_seed(seed, self.version) % 2**31

    def _right_programs(self) -> dict[str, list[str]]:
        """The right programs that come with the tasks, held out or not, by task."""
        config, profile = self._config.tasks, profile_of(self._config.evaluator.arch)
        sources = filter(None, (config.source, config.held_out.source))
        return {task: known for source in sources for task, known in right_programs(source, profile).items()}

    def _make_pools(self, further: str = "") -> ArchPools:
        """The builders and evaluators of `evaluator.arch`, or of one of `evaluation.archs`."""
        config = self._config
        settings = PoolSettings(
            self._placement,
            self.store,
            config.guard.enabled,
            1 if further else self._ahead,
            build_seconds(config),
            evaluation_seconds(config),
        )
        if further:
            evaluator = replace(evaluator_on(config, further), verdicts_of=self._evaluator.verdicts_of)
            idle_minutes = config.evaluation.archs[further].idle_minutes
            return make_arch_pools(evaluator, settings, further=further, idle_minutes=idle_minutes)
        right = self._right_programs() if self.looks_on_cpu else None
        looks = config.placement.share == "all"
        return make_arch_pools(self._evaluator, settings, looks=looks, right_programs=right)

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
        self._hold_restarts("the learner is lost, and another starts")
        self.learner.stop()
        self.learner = self._make_learner()

    @contextmanager
    def learner_alone(self) -> Iterator[None]:
        """Within this block, restarted engines get no weights, because the learner works on them."""
        self._hold_restarts("the learner works on its weights")
        try:
            yield
        finally:
            self._hold_restarts("")

    def _hold_restarts(self, why: str) -> None:
        if self.engines is not None:
            self.engines.members.hold_restarts(why)

    def push_weights(self, version: int, pipeline: Waiter) -> float:
        """Gives every engine the learner's weights as `version`; returns the seconds that it took.

        Steps under way in the pipeline go on meanwhile, but their responses all come from the weights before. Without a
        learner the engines keep theirs.
        """
        if not self.learns:
            self.turns.give_to(ENGINE)
            self.version = version
            return 0.0
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
            *((("engines", "", self.engines),) if self.engines is not None else ()),
            ("builders", arch, self.builders),
            ("evaluators", arch, self.evaluators),
        )
        of_further = [
            figures_of_pool(role, name, pool, is_further=True)
            for name, pools in list(self.further.items())
            for role, pool in (("builders", pools.builders), ("evaluators", pools.evaluators))
        ]
        figures = [*(figures_of_pool(*each) for each in of_pools), *of_further]
        if self.learns:
            figures.append(RoleFigures("learner", "", 0, 0, ranks, ranks, ranks * self.learner.busy_seconds))
        return figures

    def rooms(self) -> Counter[Room]:
        """What the run's actors need now, those included that are not started yet. For any thread."""
        rooms = self._placement.rooms()
        for arch, pools in list(self.further.items()):
            if pools.grows:
                rooms[self._placement.room(EVALUATOR, arch)] += pools.wanted_evaluators
        return +rooms

    def _pools(self) -> list[ActorPool]:
        """Those that were made so far."""
        first = [getattr(self, name, None) for name in ("engines", "builders", "evaluators")]
        further = (pool for pools in self.further.values() for pool in (pools.builders, pools.evaluators))
        return [*(pool for pool in first if pool is not None), *further]

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
        return [*lines, *(f"cluster: {wait}" for wait in self._placement.waits())]

    def stop(self) -> None:
        """Ends every actor, and Ray if this run started it."""
        if not self._started:
            return
        if self._requests is not None:
            self._requests.close()
        for pool in self._pools():
            pool.stop()
        if hasattr(self, "learner"):
            self.learner.stop()
        self._placement.release()
        if self._own_ray:
            ray.shutdown()
