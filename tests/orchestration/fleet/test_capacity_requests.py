"""What a run asks its cluster for: all roles that stand, and evaluators as far as programs need them."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from actors.capacity_holder import NAME, NAMESPACE, Room, Rooms
from configs.load import ConfigError
from configs.schema import (
    ArchConfig,
    EvaluationConfig,
    EvaluatorConfig,
    LearnerConfig,
    PlacementConfig,
    RayConfig,
    RolloutConfig,
    RunConfig,
)
from orchestration.fleet import capacity_requests
from orchestration.fleet import roles as roles_module
from orchestration.fleet.arch_pools import ArchPools
from orchestration.fleet.capacity import Capacity
from orchestration.fleet.capacity_requests import CapacityRequests
from orchestration.fleet.placement import Placement
from orchestration.fleet.roles import Roles
from orchestration.run.directory import RunDirectory
from tests.actors.test_capacity_holder import is_gone, wait_for

CPU = Room(1, 0)
A100 = Room(1, 1, "A100")


def config_of(share: str, **archs: ArchConfig) -> RunConfig:
    return RunConfig(
        name="asks",
        evaluator=EvaluatorConfig(arch="H200", workers=4, builders=3),
        rollout=RolloutConfig(engines=2, tensor_parallel=2),
        learner=LearnerConfig(ranks=2),
        placement=PlacementConfig(share=share, engines="H100" if archs else ""),
        evaluation=EvaluationConfig(archs),
    )


def test_roles_with_gpus_of_their_own_ask_for_one_each() -> None:
    rooms = Placement(config_of("none")).rooms()
    assert rooms == {Room(1, 2): 2, Room(1, 1): 2 + 4, CPU: 3}


def test_roles_that_share_ask_for_the_bundles_that_the_group_has() -> None:
    assert Placement(config_of("training")).rooms() == {Room(2, 1): 4, Room(1, 1): 4, CPU: 3}
    assert Placement(config_of("all")).rooms() == {Room(4, 1): 4}


def test_types_of_gpus_go_with_the_request() -> None:
    archs = {"A100": ArchConfig(workers=2, builders=1), "cpu": ArchConfig(workers=1, builders=1)}
    rooms = Placement(config_of("none", **archs)).rooms()
    assert rooms == {Room(1, 2, "H100"): 2, Room(1, 1): 2, Room(1, 1, "H200"): 4, A100: 2, CPU: 3 + 1 + 2}


def test_a_run_on_a_cpu_asks_for_cpus_alone() -> None:
    config = RunConfig(name="asks", evaluator=EvaluatorConfig(arch="cpu", workers=2, builders=1))
    assert Placement(config).rooms() == {CPU: 2 + 1 + config.rollout.engines + config.learner.ranks}


def queue(items: int) -> Any:
    return SimpleNamespace(pending=items)  # of a pool; it is only counted here


@pytest.mark.parametrize(("built", "judged", "wanted"), [(0, 0, 0), (2, 0, 2), (1, 2, 3), (9, 9, 4)])
def test_a_growing_pool_wants_an_evaluator_for_each_program_up_to_its_size(
    built: int, judged: int, wanted: int, tmp_path: Any
) -> None:
    config = config_of("none", A100=ArchConfig(workers=4, builders=1, idle_minutes=5.0))
    roles = Roles(config, "", RunDirectory(str(tmp_path), "asks"))
    standing = roles.rooms()
    assert A100 not in standing
    roles.further["A100"] = ArchPools(queue(built), queue(judged), grows=True, workers=4)
    assert roles.rooms() == standing + Counter({A100: wanted})


@pytest.mark.parametrize(("asks", "grows"), [(True, True), (True, False), (False, True)])
def test_a_run_asks_before_it_waits_for_gpus_and_lets_go_if_it_does_not_get_them(
    asks: bool, grows: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    events: list[Any] = []

    class Requests:
        """Records; the real ones are tested below and in `test_capacity_on_ray`."""

        def __init__(self, run: str, needs: Any) -> None:
            events.append((run, needs()))

        def start(self) -> None:
            events.append("started")

        def close(self) -> None:
            events.append("closed")

    def wait_for_gpus(*_: Any, **_more: Any) -> None:
        events.append("waits")
        raise ConfigError("no GPU came in time")

    monkeypatch.setattr(roles_module, "CapacityRequests", Requests)
    monkeypatch.setattr(roles_module, "connect", lambda *_: grows)
    monkeypatch.setattr(Placement, "reserve", wait_for_gpus)
    config = replace(config_of("training"), ray=RayConfig(request_capacity=asks))
    roles = Roles(config, "", RunDirectory(str(tmp_path), "asks"))
    with pytest.raises(ConfigError):
        roles.start()
    roles.stop()
    if asks and grows:
        assert events == [(f"{tmp_path}/asks", Placement(config).rooms()), "started", "waits", "closed"]
    else:
        assert events == ["waits"]


@pytest.mark.slow
def test_needs_are_told_while_the_run_lives_and_let_go_when_it_ends(
    local_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity_requests, "_SECONDS", 0.2)
    needs: dict[Room, int] = {A100: 2}
    requests = CapacityRequests("run", lambda: dict(needs), scales=lambda: True)
    requests.start()
    holder = wait_for_holder()
    wait_for(lambda: needs_of(holder) == {"run": {A100: 2}})
    needs.clear()
    wait_for(lambda: needs_of(holder) == {"run": {}})
    ray.kill(holder)  # as if its node had died
    wait_for(is_gone)
    needs[A100] = 1
    another = wait_for_holder()
    wait_for(lambda: needs_of(another) == {"run": {A100: 1}})
    requests.close()
    assert needs_of(another) == {}
    ray.kill(another)
    wait_for(is_gone)


def wait_for_holder() -> Any:
    wait_for(lambda: not is_gone())
    return ray.get_actor(NAME, namespace=NAMESPACE)


def needs_of(holder: Any) -> dict[str, Rooms]:
    def look(actor: Any) -> dict[str, Rooms]:
        return {run: rooms for run, (_, rooms) in actor._ledger._needs.items()}

    found: dict[str, Rooms] = ray.get(holder.__ray_call__.remote(look), timeout=60)
    return found


def test_a_cluster_that_does_not_scale_is_asked_for_nothing(local_ray: None, caplog: pytest.LogCaptureFixture) -> None:
    requests = CapacityRequests("run", lambda: {A100: 1})
    with caplog.at_level(logging.WARNING):
        requests.look()
        requests.look()
    assert is_gone()
    assert [record.getMessage() for record in caplog.records] == [
        "ray.request_capacity: the cluster has no autoscaler of Ray's version 2, so nothing is asked for in advance"
    ]
    requests.close()


def test_a_failure_delays_nothing_and_ends_no_run(
    local_ray: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> Any:
        raise ConnectionError("the head is away")

    monkeypatch.setattr(capacity_requests, "_SECONDS", 0.1)
    requests = CapacityRequests("run", lambda: {A100: 1}, scales=fail)
    with caplog.at_level(logging.WARNING):
        requests.start()
        wait_for(lambda: caplog.records)
    requests.close()
    assert "the head is away" in caplog.records[0].getMessage()


def test_more_than_the_cluster_can_have_is_seen() -> None:
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

    reply = GetClusterStatusReply()
    assert not Capacity.of(reply).refuses_request
    reply.autoscaling_state.infeasible_cluster_resource_constraints.add()
    assert Capacity.of(reply).refuses_request
