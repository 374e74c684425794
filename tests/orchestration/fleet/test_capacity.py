"""What a cluster has, starts and can never have, from the answers that Ray's control service gives."""

from __future__ import annotations

from typing import Any

import pytest
from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

from actors.capacity_holder import TYPE_LABEL
from orchestration.fleet.capacity import Capacity


def node(reply: Any, kind: str, total: int, free: int) -> None:
    made = reply.cluster_resource_state.node_states.add()
    made.total_resources["GPU"], made.available_resources["GPU"] = total, free
    made.labels[TYPE_LABEL] = kind


def ask(request: Any, kind: str, gpus: float = 1.0) -> None:
    request.resources_bundle["GPU"] = gpus
    if kind:
        constraint = request.label_selectors.add().label_constraints.add()
        constraint.label_key = TYPE_LABEL
        constraint.label_values.append(kind)


@pytest.fixture
def reply() -> Any:
    """Four H100, all taken, and two A100, one free; two H100 and a gang of two A100 are asked for."""
    made = GetClusterStatusReply()
    node(made, "H100", 4, 0)
    node(made, "A100", 2, 1)
    pending = made.cluster_resource_state.pending_resource_requests.add(count=2)
    ask(pending.request, "H100")
    gang = made.cluster_resource_state.pending_gang_resource_requests.add()
    bundles = gang.bundle_selectors.add()
    for _ in range(2):
        ask(bundles.resource_requests.add(), "A100", 0.5)
    return made


def test_it_says_what_is_waited_for_and_what_there_is(reply: Any) -> None:
    assert Capacity.of(reply).waits() == [
        "waiting for 2 x A100: 1 free, 2 in the cluster",
        "waiting for 2 x H100: 0 free, 4 in the cluster",
    ]
    assert Capacity.of(reply).here() == "2 x A100, 4 x H100"


def test_nodes_that_start_or_failed_to_are_named_by_their_groups(reply: Any) -> None:
    scaler = reply.autoscaling_state
    scaler.pending_instance_requests.add(ray_node_type_name="h100x8", count=2)
    scaler.pending_instances.add(ray_node_type_name="h100x8")
    scaler.failed_instance_requests.add(ray_node_type_name="h100x4", count=1, reason="no capacity")
    assert Capacity.of(reply).describe("H100", 2) == (
        "waiting for 2 x H100: 0 free, 4 in the cluster, 3 nodes starting (3 of h100x8), h100x4 failed to start: no "
        "capacity"
    )


def test_a_cluster_that_does_not_scale_never_has_what_it_has_not(reply: Any) -> None:
    capacity = Capacity.of(reply)
    assert not capacity.scales
    assert capacity.absent(["A100", "L40S", ""]) == ["L40S"]


def test_a_cluster_that_scales_may_get_any_type_but_those_that_no_node_type_gives(reply: Any) -> None:
    reply.autoscaling_state.autoscaler_state_version = 1
    ask(reply.autoscaling_state.infeasible_resource_requests.add(), "T4")
    gang = reply.autoscaling_state.infeasible_gang_resource_requests.add()
    ask(gang.bundle_selectors.add().resource_requests.add(), "B200")
    ask(reply.autoscaling_state.infeasible_resource_requests.add(), "A100", 16)  # too many
    capacity = Capacity.of(reply)
    assert capacity.scales
    assert capacity.absent(["A100", "L40S", "T4", "B200"]) == ["T4", "B200"]
    assert "no type of node gives them" in capacity.describe("T4", 1)


def test_requests_without_a_type_are_for_any_gpu_and_those_without_a_gpu_are_left_out(reply: Any) -> None:
    pending = reply.cluster_resource_state.pending_resource_requests
    ask(pending.add(count=1).request, "")
    pending.add(count=9).request.resources_bundle["CPU"] = 1
    capacity = Capacity.of(reply)
    assert capacity.pending == {"": 1, "A100": 2, "H100": 2}
    assert capacity.describe("", 1) == "waiting for 1 x GPU: 1 free, 6 in the cluster"
