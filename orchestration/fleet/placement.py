"""Which GPU each actor of a run gets, by the configuration alone: one of its own, or one that roles share in turns.

Actors that share GPUs are in one placement group with a bundle for each GPU. The n-th actors of all roles are on the
n-th GPU. In a cluster with several types of GPUs, actors ask for theirs by the label that Ray gives to nodes.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.capacity_holder import TYPE_LABEL, Room
from configs.frozen import has_engines, learns
from configs.load import ConfigError
from configs.schema import RunConfig
from orchestration.fleet.capacity import Capacity, shortage
from orchestration.fleet.mps import MpsServer

_log = logging.getLogger(__name__)

ENGINE, EVALUATOR, LEARNER, BUILDER = "engine", "evaluator", "learner", "builder"
_SHARING = {"none": (), "training": (ENGINE, LEARNER), "all": (ENGINE, LEARNER, EVALUATOR)}
# Parts of a GPU in Ray's accounts, for each of up to three roles and for all builders together. They decide which actor
# is on which GPU, not how much of it an actor gets.
_SHARE, _SHARE_OF_BUILDERS = 0.3, 0.1
_REMEDY = "lower rollout.engines, learner.ranks, evaluator.workers and evaluator.builders, or add to the cluster"


def _check_room(bundle: Room, gpus: int) -> None:
    """Raises ConfigError if the nodes of a cluster that does not grow have no room for so many bundles, even idle."""
    nodes = [
        node["Resources"]
        for node in ray.nodes()
        if node["Alive"] and bundle.labels.items() <= (node.get("Labels") or {}).items()
    ]
    fits = sum(int(min(node.get(name, 0) // need for name, need in bundle.resources.items())) for node in nodes)
    if fits < gpus:
        here = "; ".join(f"{node.get('GPU', 0):g} GPU(s) and {node.get('CPU', 0):g} CPUs" for node in nodes)
        raise ConfigError(
            f"placement.share: {gpus} GPU(s) with {bundle.cpus:g} CPUs each do not fit into the cluster's nodes, which "
            f"have {here or 'no such GPU'}; {_REMEDY}"
        )


class Placement:
    """The options for Ray of every actor. With `arch: cpu` no actor asks for a GPU, but for evaluators of further
    architectures."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._on_gpu = config.evaluator.arch != "cpu"
        self._group: PlacementGroup | None = None
        self._mps: MpsServer | None = None
        self._builders_per_gpu = 0  # 0: builders are on no GPU
        placement = config.placement
        self._has_types = bool(config.evaluation.archs or placement.learner or placement.engines)

    def reserve(self, *, grows: bool = False) -> None:
        """Takes the GPUs that roles share, and starts MPS if the configuration asks for it.

        `grows`: the cluster may get more GPUs. Raises ConfigError if there are too few, if the cluster does not give
        them in time, if it can never have GPUs of a type that is asked for, or if MPS does not start.
        """
        self.refuse_absent()
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
        bundle, gpus = self._shared()
        cpus, kind = bundle.cpus, bundle.kind
        if not grows:
            _check_room(bundle, gpus)
        if EVALUATOR in sharing:
            self._builders_per_gpu = self._builders_on(gpus)
        labels = [bundle.labels] * gpus if kind else None
        self._group = placement_group([bundle.resources] * gpus, strategy="PACK", bundle_label_selector=labels)
        limit = self._config.rollout.start_timeout
        try:
            ray.get(self._group.ready(), timeout=limit)
        except GetTimeoutError:
            lacking = shortage(kind, gpus)
            self.release()
            raise ConfigError(
                f"placement.share: {gpus} GPU(s) with {cpus:g} CPUs each were not available within {limit:.0f} s"
                f"{f' ({lacking})' if lacking else ''}; {_REMEDY}"
            ) from None

    def _shared(self) -> tuple[Room, int]:
        """A bundle of the group of GPUs that roles share, and the number of bundles."""
        sharing, config = _SHARING[self._config.placement.share], self._config
        gpus = max(self._gpus()[role] for role in sharing)
        cpus = len(sharing) - 1 + config.rollout.engines_per_gpu
        if EVALUATOR in sharing:
            cpus += self._builders_on(gpus)
        return Room(cpus, 1, self.type_of(sharing[-1])), gpus

    def _builders_on(self, gpus: int) -> int:
        """Builders that share one of so many GPUs."""
        return -(-self._config.evaluator.builders // gpus)

    def rooms(self) -> Counter[Room]:
        """What the roles need that stand as long as the run does: all but evaluators with `idle_minutes`. For any
        thread."""
        config, rooms = self._config, Counter[Room]()
        sharing = _SHARING[config.placement.share] if self._on_gpu else ()
        if sharing:
            bundle, count = self._shared()
            rooms[bundle] += count
        counts = {
            ENGINE: config.rollout.engines if has_engines(config) else 0,
            LEARNER: config.learner.ranks if learns(config) else 0,
            EVALUATOR: config.evaluator.workers,
            BUILDER: config.evaluator.builders,
        }
        for role, count in counts.items():
            if role not in sharing and not (role == BUILDER and EVALUATOR in sharing):
                rooms[self.room(role)] += count
        for arch, one in config.evaluation.archs.items():
            rooms[self.room(BUILDER, arch)] += one.builders
            if not one.idle_minutes:
                rooms[self.room(EVALUATOR, arch)] += one.workers
        return rooms

    def room(self, role: str, arch: str = "") -> Room:
        """What one actor of a role needs that has a GPU of its own, or none. `arch`: as in `type_of`."""
        options = self.options(role, 0, arch)
        return Room(1, options.get("num_gpus", 0), options.get("label_selector", {}).get(TYPE_LABEL, ""))

    def type_of(self, role: str, arch: str = "") -> str:
        """The type of GPU that a role's actors ask for; empty for any, or for none.

        `arch`: of evaluators and builders, if it is not `evaluator.arch`.
        """
        if role == EVALUATOR and arch:
            return "" if arch == "cpu" else arch
        if not self._on_gpu:
            return ""
        placement = self._config.placement
        evaluators = self._config.evaluator.arch if self._has_types else ""
        kinds = {ENGINE: placement.engines, LEARNER: placement.learner, EVALUATOR: evaluators}
        if placement.share == "all" and self._has_types:
            return evaluators
        return kinds.get(role, "")

    def refuse_absent(self) -> None:
        """Raises ConfigError if the cluster can never have a GPU of a type that is asked for."""
        if not self._has_types:
            return
        keys = {self.type_of(EVALUATOR, arch): f"evaluation.archs.{arch}" for arch in self._config.evaluation.archs}
        keys |= {self.type_of(EVALUATOR): "evaluator.arch"}
        keys |= {self.type_of(ENGINE): "placement.engines", self.type_of(LEARNER): "placement.learner"}
        keys.pop("", None)
        capacity = Capacity.look()
        for kind in capacity.absent(keys):
            why = "no type of its nodes gives them" if capacity.scales else "it does not scale"
            raise ConfigError(
                f"{keys[kind]}: the cluster has no {kind}, and {why}; it has {capacity.here()}: name another type, or "
                f"add nodes with the label {TYPE_LABEL}={kind}"
            )

    def _gpus(self) -> dict[str, int]:
        """The number of GPUs that each role is on, without evaluators of further architectures."""
        rollout = self._config.rollout
        return {
            ENGINE: -(-rollout.engines // rollout.engines_per_gpu) * rollout.tensor_parallel
            if has_engines(self._config)
            else 0,
            LEARNER: self._config.learner.ranks if learns(self._config) else 0,
            EVALUATOR: self._config.evaluator.workers,
        }

    def _check_number(self, *, grows: bool) -> None:
        """Raises ConfigError if there are too few GPUs for all roles, and no more will come."""
        counts = self._gpus()
        sharing = _SHARING[self._config.placement.share]
        shared = max((counts[role] for role in sharing), default=0)
        needed = shared + sum(count for role, count in counts.items() if role not in sharing)
        further = {arch: one.workers for arch, one in self._config.evaluation.archs.items() if arch != "cpu"}
        needed += sum(further.values())
        available = int(ray.cluster_resources().get("GPU", 0))
        if available >= needed:
            return
        on_further = [f"{count} for evaluators on {arch}" for arch, count in further.items()]
        roles = ", ".join([*(f"{count} for {role}s" for role, count in counts.items()), *on_further])
        need = f"placement.share={self._config.placement.share}: the run needs {needed} GPU(s) ({roles}), and "
        if grows:
            _log.warning("%sthe cluster has %d now; the run waits for more", need, available)
            return
        remedy = "" if self._config.placement.share == "all" else "set placement.share=all, or "
        raise ConfigError(
            f"{need}{available} are here: {remedy}lower rollout.engines, learner.ranks and evaluator.workers, or join "
            "a cluster (ray.address)"
        )

    def waits(self) -> list[str]:
        """What actors wait for, by type of GPU, in words. For any thread."""
        if not (self._on_gpu or self._has_types):
            return []
        try:
            return Capacity.look().waits()
        except Exception:  # noqa: BLE001 - a message may lack this, but must not fail
            return []

    def options(self, role: str, index: int, arch: str = "") -> dict[str, Any]:
        """Options for Ray of the `index`-th actor of a role. `arch`: as in `type_of`."""
        if arch:
            return {} if role == BUILDER or arch == "cpu" else {"num_gpus": 1, "label_selector": {TYPE_LABEL: arch}}
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
        kind = self.type_of(role)
        labels = {"label_selector": {TYPE_LABEL: kind}} if kind else {}
        return {"num_gpus": self._config.rollout.tensor_parallel / per_gpu if role == ENGINE else 1, **labels}

    def release(self) -> None:
        """Gives shared GPUs back, and ends MPS. The actors must have ended before."""
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None
        if self._mps is not None:
            self._mps.stop()
            self._mps = None
