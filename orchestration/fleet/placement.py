"""Which GPU each actor of a run gets, by the configuration alone: one of its own, or one that roles share in turns.

Actors that share GPUs are in one placement group with a bundle for each GPU. The n-th actors of all roles are on the
n-th GPU.
"""

from __future__ import annotations

import logging
from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from configs.load import ConfigError
from configs.schema import RunConfig
from orchestration.fleet.mps import MpsServer

_log = logging.getLogger(__name__)

ENGINE, EVALUATOR, LEARNER, BUILDER = "engine", "evaluator", "learner", "builder"
_SHARING = {"none": (), "training": (ENGINE, LEARNER), "all": (ENGINE, LEARNER, EVALUATOR)}
# Parts of a GPU in Ray's accounts, for each of up to three roles and for all builders together. They decide which actor
# is on which GPU, not how much of it an actor gets.
_SHARE, _SHARE_OF_BUILDERS = 0.3, 0.1


class Placement:
    """The options for Ray of every actor. With `arch: cpu` no actor asks for a GPU."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._on_gpu = config.evaluator.arch != "cpu"
        self._group: PlacementGroup | None = None
        self._mps: MpsServer | None = None
        self._builders_per_gpu = 0  # 0: builders are on no GPU

    def reserve(self, *, grows: bool = False) -> None:
        """Takes the GPUs that roles share, and starts MPS if the configuration asks for it.

        `grows`: the cluster may get more GPUs. Raises ConfigError if there are too few, if the cluster does not give
        them in time, or if MPS does not start.
        """
        if self._on_gpu:
            self._check_number(grows=grows)
        if self._on_gpu and self._config.placement.mps:
            if sum(node["Alive"] for node in ray.nodes()) > 1:
                raise ConfigError(
                    "placement.mps is for a run on one node, and there are several nodes: set it to false"
                )
            self._mps = MpsServer()
        sharing = _SHARING[self._config.placement.share]
        if not self._on_gpu or not sharing:
            return
        counts = self._gpus()
        gpus = max(counts[role] for role in sharing)
        cpus = len(sharing) - 1 + self._config.rollout.engines_per_gpu
        if EVALUATOR in sharing:
            self._builders_per_gpu = -(-self._config.evaluator.builders // gpus)
            cpus += self._builders_per_gpu
        self._group = placement_group([{"GPU": 1, "CPU": cpus}] * gpus, strategy="PACK")
        limit = self._config.rollout.start_timeout
        try:
            ray.get(self._group.ready(), timeout=limit)
        except GetTimeoutError:
            self.release()
            raise ConfigError(
                f"placement.share: {gpus} GPU(s) with {cpus} CPUs each were not available within {limit:.0f} s; "
                "lower rollout.engines, learner.ranks, evaluator.workers and evaluator.builders, or add to the cluster"
            ) from None

    def _gpus(self) -> dict[str, int]:
        """The number of GPUs that each role is on."""
        rollout = self._config.rollout
        return {
            ENGINE: -(-rollout.engines // rollout.engines_per_gpu) * rollout.tensor_parallel,
            LEARNER: self._config.learner.ranks,
            EVALUATOR: self._config.evaluator.workers,
        }

    def _check_number(self, *, grows: bool) -> None:
        """Raises ConfigError if there are too few GPUs for all roles, and no more will come."""
        counts = self._gpus()
        sharing = _SHARING[self._config.placement.share]
        shared = max((counts[role] for role in sharing), default=0)
        needed = shared + sum(count for role, count in counts.items() if role not in sharing)
        available = int(ray.cluster_resources().get("GPU", 0))
        if available >= needed:
            return
        roles = ", ".join(f"{count} for {role}s" for role, count in counts.items())
        need = f"placement.share={self._config.placement.share}: the run needs {needed} GPU(s) ({roles}), and "
        if grows:
            _log.warning("%sthe cluster has %d now; the run waits for more", need, available)
            return
        remedy = "" if self._config.placement.share == "all" else "set placement.share=all, or "
        raise ConfigError(
            f"{need}{available} are here: {remedy}lower rollout.engines, learner.ranks and evaluator.workers, or join "
            "a cluster (ray.address)"
        )

    def options(self, role: str, index: int) -> dict[str, Any]:
        """Options for Ray of the `index`-th actor of a role."""
        if not self._on_gpu:
            return {}
        options = self._place(role, index)
        if self._mps is not None and role in (ENGINE, LEARNER):
            options["runtime_env"] = {"env_vars": self._mps.environment}
        return options

    def _place(self, role: str, index: int) -> dict[str, Any]:
        """The part of a GPU, and the place in the group, of the `index`-th actor of a role."""
        if role == BUILDER:
            if self._group is None or not self._builders_per_gpu:
                return {}
            bundle = index // self._builders_per_gpu
            here = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
            gpu = int(1e4 * _SHARE_OF_BUILDERS / self._builders_per_gpu) / 1e4  # Ray's smallest part
            return {"num_gpus": gpu, "num_cpus": 1, "scheduling_strategy": here}
        per_gpu = self._config.rollout.engines_per_gpu if role == ENGINE else 1
        if self._group is not None and role in _SHARING[self._config.placement.share]:
            here = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=index // per_gpu)
            return {"num_gpus": _SHARE / per_gpu, "num_cpus": 1, "scheduling_strategy": here}
        return {"num_gpus": self._config.rollout.tensor_parallel / per_gpu if role == ENGINE else 1}

    def release(self) -> None:
        """Gives shared GPUs back, and ends MPS. The actors must have ended before."""
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None
        if self._mps is not None:
            self._mps.stop()
            self._mps = None
