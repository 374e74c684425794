"""The GPUs of a Ray cluster by their type, and what actors wait for, in words.

Everything comes from one answer of Ray's control service, which also knows what its autoscaler starts, and what no type
of node could ever give. Never waits longer than that answer takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray

from actors.capacity_holder import TYPE_LABEL

_SECONDS = 10.0


@dataclass(frozen=True)
class Capacity:
    """What a cluster has of GPUs, by type; nodes without the label count as type ``.

    `pending`: GPUs that actors and placement groups ask for by type, and have not got. `starting`: nodes that the
    autoscaler starts, by the names of their groups. `impossible`: the types that its autoscaler can give no node of, at
    least not as large as asked for. `failures`: why launches failed, by group. `scales`: whether there is an
    autoscaler. `refuses_request`: whether its request (`actors.capacity_holder`) is more than it can ever have.
    """

    total: Mapping[str, int] = field(default_factory=dict)
    free: Mapping[str, int] = field(default_factory=dict)
    pending: Mapping[str, int] = field(default_factory=dict)
    starting: Mapping[str, int] = field(default_factory=dict)
    impossible: frozenset[str] = frozenset()
    failures: Mapping[str, str] = field(default_factory=dict)
    scales: bool = False
    refuses_request: bool = False

    @classmethod
    def look(cls) -> Capacity:
        """The cluster that this process has joined, now. Raises ray.exceptions.RpcError if it does not answer."""
        from ray._raylet import GcsClient  # type: ignore[attr-defined]
        from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply  # type: ignore[attr-defined]

        reply = GetClusterStatusReply()
        address = ray.get_runtime_context().gcs_address
        reply.ParseFromString(GcsClient(address).get_cluster_status(timeout_s=_SECONDS))
        return cls.of(reply)

    @classmethod
    def of(cls, reply: Any) -> Capacity:
        """What an answer of the control service (`GetClusterStatusReply`) says."""
        state, scaler = reply.cluster_resource_state, reply.autoscaling_state
        total, free, starting = Counter[str](), Counter[str](), Counter[str]()
        for node in state.node_states:
            kind = node.labels.get(TYPE_LABEL, "")
            if gpus := int(node.total_resources.get("GPU", 0)):
                total[kind] += gpus
                free[kind] += int(node.available_resources.get("GPU", 0))
        for each in scaler.pending_instance_requests:
            starting[each.ray_node_type_name] += each.count
        for each in scaler.pending_instances:
            starting[each.ray_node_type_name] += 1
        gangs = [request for gang in scaler.infeasible_gang_resource_requests for request in _of_gang(gang)]
        return cls(
            total,
            free,
            _pending(state),
            starting,
            frozenset(
                kind
                for request in (*scaler.infeasible_resource_requests, *gangs)
                if (kind := _kind_of(request)) is not None
            ),
            {each.ray_node_type_name: each.reason for each in scaler.failed_instance_requests},
            reply.HasField("autoscaling_state"),
            bool(scaler.infeasible_cluster_resource_constraints),
        )

    def describe(self, kind: str, wanted: int) -> str:
        """`waiting for 2 x H100: 0 free, 4 in the cluster, 3 nodes starting`. `kind`: empty for any GPU."""
        free = sum(self.free.values()) if not kind else self.free.get(kind, 0)
        total = sum(self.total.values()) if not kind else self.total.get(kind, 0)
        parts = [f"{free} free", f"{total} in the cluster"]
        if nodes := sum(self.starting.values()):
            groups = ", ".join(f"{count} of {name}" for name, count in sorted(self.starting.items()))
            parts.append(f"{nodes} node{'s' if nodes > 1 else ''} starting ({groups})")
        if kind in self.impossible:
            parts.append("no type of node gives them")
        parts += [f"{name} failed to start: {reason}" for name, reason in sorted(self.failures.items())]
        return f"waiting for {wanted} x {kind or 'GPU'}: {', '.join(parts)}"

    def waits(self) -> list[str]:
        """A line for every type that is asked for and not there."""
        return [self.describe(kind, count) for kind, count in sorted(self.pending.items())]

    def absent(self, kinds: Iterable[str]) -> list[str]:
        """Which of these types the cluster has no GPU of, and can never get one as it stands."""
        missing = [kind for kind in kinds if not (self.total.get(kind, 0) if kind else self.total)]
        return [kind for kind in missing if kind in self.impossible or not self.scales]

    def here(self) -> str:
        """`4 x H100, 8 x A100`."""
        kinds = (f"{count} x {kind or 'GPU of unknown type'}" for kind, count in sorted(self.total.items()))
        return ", ".join(kinds) or "no GPU"


def shortage(kind: str, wanted: int) -> str:
    """What actors that ask for GPUs of a type wait for, `wanted` at most; empty if all have their GPUs."""
    try:
        capacity = Capacity.look()
    except Exception:  # noqa: BLE001 - a message may lack this, but must not fail
        return ""
    pending = min(capacity.pending.get(kind, 0), wanted)
    return capacity.describe(kind, pending) if pending else ""


def _pending(state: Any) -> dict[str, int]:
    """GPUs that are asked for, by type."""
    pending = Counter[str]()
    for each in state.pending_resource_requests:
        if (kind := _kind_of(each.request)) is not None:
            pending[kind] += each.count * _gpus_of(each.request)
    for gang in state.pending_gang_resource_requests:
        for request in _of_gang(gang):
            if (kind := _kind_of(request)) is not None:
                pending[kind] += _gpus_of(request)
    return dict(pending)


def _of_gang(gang: Any) -> list[Any]:
    """The requests for the bundles of a placement group. Ray fills one of two fields, by its version."""
    if gang.bundle_selectors:
        return list(gang.bundle_selectors[0].resource_requests)
    return list(gang.requests)


def _gpus_of(request: Any) -> int:
    return -int(-request.resources_bundle.get("GPU", 0) // 1)


def _kind_of(request: Any) -> str | None:
    """The type of GPU that a request asks for, empty for any; None if it asks for no GPU."""
    if not request.resources_bundle.get("GPU", 0):
        return None
    for selector in request.label_selectors:
        for constraint in selector.label_constraints:
            if constraint.label_key == TYPE_LABEL and constraint.label_values:
                return str(constraint.label_values[0])
    return ""
