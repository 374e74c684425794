"""How the learner's weights reach every rollout engine, by the transport that their placement allows.

`shared`: learner and engine are on one GPU, and the engine reads the learner's memory. `broadcast`: they are on
different GPUs, and NCCL carries the weights. `host`: through Ray's object store, which works everywhere. A restarted
engine always gets its weights by `host`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import ray
from ray.exceptions import GetTimeoutError

from actors.learner import LearnerGroup
from actors.pool import ActorPool
from actors.pool_broadcasts import Broadcast
from actors.weight_transport import BROADCAST, HOST, SHARED, ByBroadcast
from configs.schema import RunConfig
from learners.weights import WeightManifest

_log = logging.getLogger(__name__)


def transport_of(config: RunConfig) -> str:
    """The transport that `rollout.weight_transport` names or, for `auto`, the fastest that the placement allows."""
    named = config.rollout.weight_transport
    if named != "auto":
        return named
    if config.evaluator.arch == "cpu":
        return HOST
    if config.placement.share == "none":
        return BROADCAST if config.rollout.engines_per_gpu == 1 else HOST  # NCCL needs a GPU for each process
    return SHARED if -(-config.rollout.engines // config.rollout.engines_per_gpu) <= config.learner.ranks else HOST


def serves_adapters(config: RunConfig) -> bool:
    """Whether engines keep the policy that the run began with, and get only the adapters that it trains."""
    return config.learner.lora.rank > 0 and config.learner.lora.sync == "adapters"


def rank_of_adapters(config: RunConfig) -> int:
    """The rank of the adapters that engines get; 0 if they get whole weights."""
    return config.learner.lora.rank if serves_adapters(config) else 0


class Waiter(Protocol):
    """Waits for a push, and goes on with other work meanwhile: the pipeline."""

    def meanwhile(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a call."""

    def finish_responses(self) -> None:
        """Waits for the responses that engines were asked for."""

    def pump_until(self, done: Callable[[], bool]) -> None:
        """Returns once `done()`."""


class WeightPush:
    """Gives weights to engines, part by part.

    An engine that does not confirm a checksum in time is restarted by its pool, and gets the weights then.
    """

    def __init__(self, config: RunConfig, engines: ActorPool) -> None:
        self._config, self._engines = config, engines
        self._transport = transport_of(config)
        self._timeout = config.rollout.timeout
        self._limit = config.rollout.sync_bucket_mib << 20 if config.evaluator.arch != "cpu" else 0
        self._channel: tuple[LearnerGroup, tuple[Any, ...]] | None = None  # the learner and the engines in it

    def to_all(self, learner: LearnerGroup, version: int, pipeline: Waiter) -> float:
        """Pushes the weights as `version`; returns how many bytes each engine got. Other work goes on meanwhile."""
        # An engine that restarts during the push would miss the first parts.
        self._engines.members.hold_restarts(f"the others get policy version {version}")
        try:
            return self._push(learner, version, pipeline)
        finally:
            self._engines.members.hold_restarts("")

    def to_one(self, learner: LearnerGroup, version: int, engine: Any) -> None:
        """Gives a restarted engine the learner's weights as `version`.

        Raises a RayError if the engine does not take them, and LearnerLost.
        """
        for manifest, data in self._parts(learner, version, HOST):
            try:
                ray.get(engine.update_weights.remote(data, manifest), timeout=self._timeout)
            except GetTimeoutError:
                what = f"part {manifest.part + 1} of policy version {version}"
                raise GetTimeoutError(f"no receipt for {what} within {self._timeout:.0f} s") from None

    def _push(self, learner: LearnerGroup, version: int, pipeline: Waiter) -> float:
        learner.has_trained = False
        transport = HOST if serves_adapters(self._config) else self._transport
        if transport == SHARED and learner.size < self._config.learner.ranks:
            transport = HOST  # some engines are on GPUs without a rank
        if transport == BROADCAST and not self._open_channel(learner, pipeline):
            transport = HOST
        size = 0
        parts = self._parts(learner, version, transport)
        while (part := pipeline.meanwhile(next, parts, None)) is not None:
            manifest, data = part
            size += manifest.total_bytes
            push = self._engines.begin_broadcast("update_weights", data, manifest, timeout=self._timeout)
            sent = not isinstance(data, ByBroadcast) or self._send(learner, pipeline)
            pipeline.pump_until(partial(_is_done, push))
            if not sent:
                parts, size = self._parts(learner, version, HOST), 0  # from the start, to the engines that are left
        return float(size)

    def _parts(self, learner: LearnerGroup, version: int, transport: str) -> Iterator[tuple[WeightManifest, Any]]:
        dtype = self._config.policy.dtype
        if serves_adapters(self._config):  # a few megabytes, in one part
            return learner.parts(version, dtype, HOST, adapters=True)
        return learner.parts(version, dtype, transport, self._limit)

    def _send(self, learner: LearnerGroup, pipeline: Waiter) -> bool:
        """Sends a part through the channel; whether all members have received it."""
        try:
            pipeline.meanwhile(learner.send_part, self._timeout)
        except (TimeoutError, RuntimeError) as error:
            # The engines that wait for the part end, too, and the pool starts others.
            _log.warning("%s; the weights go through the object store", error)
            self._channel = None
            return False
        return True

    def _open_channel(self, learner: LearnerGroup, pipeline: Waiter) -> bool:
        """Opens a channel for learner and engines, unless there is one; whether no member is missing from it."""
        members = tuple(self._engines.members.healthy())
        if self._channel is not None and self._channel[0] is learner and self._channel[1] == members:
            return True
        size = 1 + len(members) * self._config.rollout.tensor_parallel
        address, port, met = learner.open_channel(size, self._timeout)
        join = self._engines.begin_broadcast(
            "join_weight_channel", address, port, size, self._timeout, timeout=self._timeout
        )
        pipeline.pump_until(lambda: join.done)
        try:
            if not pipeline.meanwhile(lambda: ray.wait([met], timeout=self._timeout))[0]:
                raise TimeoutError(f"learner rank 0 still waits for engines after {self._timeout:.0f} s")
            ray.get(met)
            if len(join.results) < len(members):
                raise TimeoutError(f"{len(join.results)} of {len(members)} engines came")
        except Exception as error:  # noqa: BLE001 - whatever failed, there is another transport
            _log.warning("no channel for weights (%s): they go through the object store", error)
            return False
        self._channel = (learner, members)
        return True


def _is_done(push: Broadcast) -> bool:
    return push.done
