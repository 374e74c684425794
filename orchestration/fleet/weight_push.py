"""The learner's weights on their way to every rollout engine, by the way that their places allow.

`shared`: learner and engine stand on one GPU, and the engine reads the learner's memory. `broadcast`: they stand on
different ones, and NCCL carries the weights. `host`: through Ray's object store, which works everywhere, and is what an
engine gets its weights by that came back from a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import ray

from actors.learner import LearnerGroup
from actors.pool import ActorPool
from actors.weight_transport import BROADCAST, HOST, SHARED, ByBroadcast
from configs.schema import RunConfig
from learners.weights import WeightManifest

_log = logging.getLogger(__name__)


def transport_of(config: RunConfig) -> str:
    """The way that `rollout.weight_transport` names, or that the placement allows."""
    named = config.rollout.weight_transport
    if named != "auto":
        return named
    if config.evaluator.arch == "cpu":
        return HOST
    if config.placement.share == "none":
        return BROADCAST if config.rollout.engines_per_gpu == 1 else HOST  # NCCL wants a GPU for each process
    return SHARED if -(-config.rollout.engines // config.rollout.engines_per_gpu) <= config.learner.ranks else HOST


def serves_adapters(config: RunConfig) -> bool:
    """Whether engines hold the policy that a run began with and get the adapters that it trains."""
    return config.learner.lora.rank > 0 and config.learner.lora.sync == "adapters"


def rank_of_adapters(config: RunConfig) -> int:
    """Of those that engines get; 0 where they get whole weights."""
    return config.learner.lora.rank if serves_adapters(config) else 0


class Waits(Protocol):
    """Who goes on with what is under way while a push is waited for: the pipeline."""

    def meanwhile(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a call."""

    def pump_until(self, done: Callable[[], bool]) -> None:
        """Returns once `done()`."""


class WeightPush:
    """Gives weights to engines, part by part. Engines that do not confirm a checksum in time are restarted by their
    pool, and get the weights then."""

    def __init__(self, config: RunConfig, engines: ActorPool) -> None:
        self._config, self._engines = config, engines
        self._transport = transport_of(config)
        self._timeout = config.rollout.timeout
        self._limit = config.rollout.sync_bucket_mib << 20 if config.evaluator.arch != "cpu" else 0
        self._channel: tuple[LearnerGroup, tuple[Any, ...]] | None = None  # whose, and who is in it

    def to_all(self, learner: LearnerGroup, version: int, pipeline: Waits) -> float:
        """Pushes the weights as `version`; returns how many bytes each engine got. What is under way goes on."""
        self._engines.hold_restarts(True)  # who comes back in the middle would miss the first parts
        try:
            return self._push(learner, version, pipeline)
        finally:
            self._engines.hold_restarts(False)

    def to_one(self, learner: LearnerGroup, version: int, engine: Any) -> None:
        """Gives an engine that was restarted what the learner has."""
        for manifest, data in self._parts(learner, version, HOST):
            ray.get(engine.update_weights.remote(data, manifest), timeout=self._timeout)

    def _push(self, learner: LearnerGroup, version: int, pipeline: Waits) -> float:
        learner.version, learner.has_trained = version, False
        transport = HOST if serves_adapters(self._config) else self._transport
        if transport == BROADCAST and not self._open_channel(learner, pipeline):
            transport = HOST
        size = 0
        parts = self._parts(learner, version, transport)
        while (part := pipeline.meanwhile(next, parts, None)) is not None:
            manifest, data = part
            size += manifest.total_bytes
            push = self._engines.begin_broadcast("update_weights", data, manifest, timeout=self._timeout)
            sent = not isinstance(data, ByBroadcast) or self._send(learner, pipeline)
            pipeline.pump_until(lambda push=push: push.done)
            if not sent:
                parts, size = self._parts(learner, version, HOST), 0  # from the start, to those who are left
        return float(size)

    def _parts(self, learner: LearnerGroup, version: int, transport: str) -> Iterator[tuple[WeightManifest, Any]]:
        dtype = self._config.policy.dtype
        if serves_adapters(self._config):  # a few megabytes, in one part
            return learner.parts(version, dtype, HOST, adapters=True)
        return learner.parts(version, dtype, transport, self._limit)

    def _send(self, learner: LearnerGroup, pipeline: Waits) -> bool:
        """Whether everybody in the channel has got the part."""
        try:
            pipeline.meanwhile(learner.send_part, self._timeout)
        except (TimeoutError, RuntimeError) as error:
            # The engines that wait for it end, too, and the pool starts others.
            _log.warning("%s; the weights go through the object store", error)
            self._channel = None
            return False
        return True

    def _open_channel(self, learner: LearnerGroup, pipeline: Waits) -> bool:
        """Whether learner and engines have a channel in which nobody is missing."""
        members = tuple(self._engines.healthy())
        if self._channel is not None and self._channel[0] is learner and self._channel[1] == members:
            return True
        size = 1 + len(members) * self._config.rollout.tensor_parallel
        address, port, met = learner.open_channel(size, self._timeout)
        join = self._engines.begin_broadcast(
            "join_weight_channel", address, port, size, self._timeout, timeout=self._timeout
        )
        pipeline.pump_until(lambda: join.done)
        try:
            pipeline.meanwhile(lambda: ray.get(met, timeout=self._timeout))
            if len(join.results) < len(members):
                raise TimeoutError(f"{len(join.results)} of {len(members)} engines came")
        except Exception as error:  # noqa: BLE001 - whoever did not come: the weights go another way
            _log.warning("no channel for weights (%s): they go through the object store", error)
            return False
        self._channel = (learner, members)
        return True
