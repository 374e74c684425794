"""The learner as Ray actors: one a rank, driven together. Every wait is bounded; a lost rank loses the group.

A group that lost a rank cannot go on (its collectives would hang): the driver makes a new one from the last checkpoint.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any

import ray
import torch
from ray.exceptions import RayError, RayTaskError

from configs.schema import ContrastiveConfig, RunConfig
from learners.engine import LearnerEngine
from learners.records import Sample
from learners.weights import PackedWeights, WeightManifest, pack

_START_SECONDS = 300.0
_GRACE_SECONDS = 10.0


class LearnerLost(Exception):
    """A rank died or stopped answering. The message names it."""


@ray.remote(num_cpus=1)
class LearnerRank:
    """One rank: a `LearnerEngine` and the methods that its group calls on all ranks at once."""

    def address(self) -> tuple[str, int]:
        """Where the other ranks can meet this one: its node's address and a free port."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return ray.util.get_node_ip_address(), probe.getsockname()[1]

    def start(self, config: RunConfig, policy: str, rank: int, master: tuple[str, int]) -> int:
        """Loads the policy and joins the group; returns the number of weights."""
        self._engine = LearnerEngine(
            config.learner,
            policy,
            max_length=config.policy.max_length,
            rank=rank,
            world_size=config.learner.ranks,
            master_address=master[0],
            master_port=master[1],
            seed=config.seed,
        )
        return sum(parameter.numel() for parameter in self._engine.model.parameters())

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the engine."""
        return getattr(self._engine, method)(*arguments)

    def set_version(self, version: int) -> None:
        """Stamps the policy version, which checkpoints carry."""
        self._engine.policy_version = version

    def pack_weights(self, dtype: str, version: int, keep: bool) -> PackedWeights | None:
        """The current weights in one buffer; None where `keep` is false (all ranks must gather, one hands over)."""
        packed = pack(self._engine.named_weights(), getattr(torch, dtype), version)
        return packed if keep else None


class LearnerGroup:
    """All ranks of the learner. Methods take the whole step's samples; the engine shares them out."""

    def __init__(self, config: RunConfig, policy: str, *, gpus_per_rank: float = 0.0) -> None:
        """Starts the ranks. Raises LearnerLost when they do not come up, PolicyError where the policy does not load."""
        self._timeout = config.learner.timeout
        limit = max(_START_SECONDS, self._timeout)
        options = {"num_gpus": gpus_per_rank, "num_cpus": 1}
        self._ranks = [LearnerRank.options(**options).remote() for _ in range(config.learner.ranks)]
        self.version = 0
        self.busy_seconds = 0.0
        """Of calls that are done: all ranks work on each."""
        try:
            master = self._wait([self._ranks[0].address.remote()], limit)[0]
            starts = [rank.start.remote(config, policy, index, master) for index, rank in enumerate(self._ranks)]
            self.weights = int(self._wait(starts, limit)[0])
        except BaseException:
            self.stop()
            raise

    def train_cross_entropy(self, samples: Sequence[Sample], learning_rate: float) -> dict[str, float]:
        """One optimiser step of cross-entropy; see `LearnerEngine.train_cross_entropy`."""
        return self._all("train_cross_entropy", ray.put(list(samples)), learning_rate)[0]

    def train_grpo(
        self, samples: Sequence[Sample], learning_rate: float, config: ContrastiveConfig, temperature: float
    ) -> dict[str, float]:
        """One GRPO step; see `LearnerEngine.train_grpo`."""
        return self._all("train_grpo", ray.put(list(samples)), learning_rate, config, temperature)[0]

    def set_reference(self) -> None:
        """Freezes the current policy as the reference of the KL term."""
        self._all("set_reference")

    def pack_weights(self, version: int, dtype: str) -> tuple[WeightManifest, ray.ObjectRef]:
        """The weights as a manifest and a byte buffer in the object store, stamped with `version`."""
        self.version = version
        self._wait([rank.set_version.remote(version) for rank in self._ranks], self._timeout)
        calls = [rank.pack_weights.remote(dtype, version, index == 0) for index, rank in enumerate(self._ranks)]
        packed = self._wait(calls, self._timeout)[0]
        return packed.manifest, ray.put(packed.data)

    def save(self, folder: str) -> None:
        """Writes a checkpoint to a folder that all ranks see."""
        self._all("save", folder)

    def load(self, folder: str) -> None:
        """Continues from a checkpoint."""
        self._all("load", folder)

    def export(self, folder: str) -> None:
        """Writes the policy as a Hugging Face folder."""
        self._all("export", folder)

    def stop(self) -> None:
        """Ends all ranks."""
        for rank in self._ranks:
            ray.kill(rank)

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        return self._wait([rank.call.remote(method, *arguments) for rank in self._ranks], self._timeout)

    def _wait(self, calls: list[ray.ObjectRef], timeout: float) -> list[Any]:
        """Results of one call to each rank, in order of rank. An exception of the engine's own is raised as it is.

        Ends at the first failure: when one rank is gone, the others wait for it in a collective.
        """
        started = time.monotonic()
        deadline = started + timeout
        results: dict[ray.ObjectRef, Any] = {}
        missing = list(calls)
        while missing:
            done, missing = ray.wait(missing, num_returns=1, timeout=max(deadline - time.monotonic(), 0.0))
            if not done:
                raise LearnerLost(f"learner rank {calls.index(missing[0])} did not answer within {timeout:.0f} s")
            rank = calls.index(done[0])
            try:
                results[done[0]] = ray.get(done[0])
            except RayTaskError as error:
                # A rank that dies makes the others' collectives fail; which of the two is heard first is chance.
                self._raise_for_the_dead(missing)
                raise error.cause from error
            except RayError as error:
                raise _lost(rank, error) from error
        self.busy_seconds += time.monotonic() - started
        return [results[call] for call in calls]

    def _raise_for_the_dead(self, calls: list[ray.ObjectRef]) -> None:
        """Raises LearnerLost where one of the calls ends, within moments, because its rank died."""
        done = ray.wait(calls, num_returns=len(calls), timeout=_GRACE_SECONDS)[0] if calls else []
        for call in done:
            try:
                ray.get(call)
            except RayTaskError:
                continue
            except RayError as error:
                raise _lost(None, error) from error


def _lost(rank: int | None, error: RayError) -> LearnerLost:
    who = "a learner rank" if rank is None else f"learner rank {rank}"
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return LearnerLost(f"{who} died: {reason}")


__all__ = ["LearnerGroup", "LearnerLost"]
