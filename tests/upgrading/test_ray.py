"""What Ray forces us to do, and what we rely on in it (docs/upgrading.md)."""

from __future__ import annotations

import inspect
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, get_overloads

import pytest
import ray
from ray.core.generated.autoscaler_pb2 import GangResourceRequest, GetClusterStatusReply
from ray.rllib.utils.actor_manager import FaultTolerantActorManager

Still = Callable[[object], None]
FACTS = """
import asyncio, json, os, signal
import ray
from orchestration.fleet.ray_cluster import started

def own(*_): pass

signal.signal(signal.SIGTERM, own)
started(
    ray.init, address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=80 << 20
)

@ray.remote
class Worker:
    def facts(self):
        return {"niceness": os.getpriority(os.PRIO_PROCESS, 0), "threads": os.environ.get("OMP_NUM_THREADS")}

@ray.remote
class Asynchronous:
    async def exit_soon(self):
        asyncio.get_running_loop().call_later(0.1, ray.actor.exit_actor)

    async def wait(self):
        await asyncio.sleep(60)

worker = Worker.options(num_cpus=1).remote()
found = {**ray.get(worker.facts.remote()), "keeps_handler": signal.getsignal(signal.SIGTERM) is own}
several = [Asynchronous.remote() for _ in range(3)]
under_way = [one.wait.remote() for one in several]
ray.wait([one.exit_soon.remote() for one in several], num_returns=3, timeout=30.0)  # one may have exited already
found["exits"] = len(ray.wait(under_way, num_returns=3, timeout=3.0)[0]) == 3  # one or the other does at times
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """What a Ray of its own does, with its own defaults."""
    kept = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "OMP_NUM_THREADS")}
    kept.pop("RAY_worker_niceness", None)
    done = subprocess.run([sys.executable, "-c", FACTS], env=kept, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_niceness_of_workers(facts: dict[str, Any], still: Still) -> None:
    still(facts["niceness"] > os.getpriority(os.PRIO_PROCESS, 0))


@pytest.mark.slow
def test_threads_of_workers(facts: dict[str, Any], still: Still) -> None:
    still(facts["threads"] == "1")


@pytest.mark.slow
def test_sigterm_handlers(facts: dict[str, Any], still: Still) -> None:
    still(not facts["keeps_handler"])


@pytest.mark.slow
def test_exits_beside_methods(facts: dict[str, Any], still: Still) -> None:
    still(not facts["exits"])


def test_concurrency_groups(still: Still) -> None:
    overloads = get_overloads(ray._private.worker.remote)
    assert len(overloads) > 5
    still(not any("concurrency_groups" in inspect.signature(one).parameters for one in overloads))


def test_logging_before_init(still: Still) -> None:
    still(
        not any(
            callable(getattr(ray.LoggingConfig, name, None)) for name in ("apply", "configure", "configure_logging")
        )
    )
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        ray.LoggingConfig(encoding="JSON")._apply()
        still(len(root.handlers) > len(before))
    finally:
        for handler in [one for one in root.handlers if one not in before]:
            root.removeHandler(handler)
        root.setLevel(level)


def test_cluster_status(still: Still) -> None:
    from ray.autoscaler.v2.schema import Stats
    from ray.autoscaler.v2.utils import ClusterStatusParser

    reply = GetClusterStatusReply()
    pending = reply.cluster_resource_state.pending_resource_requests.add(count=1)
    pending.request.resources_bundle["GPU"] = 1
    label = pending.request.label_selectors.add().label_constraints.add()
    label.label_key = "ray.io/accelerator-type"
    label.label_values.append("A100")
    impossible = reply.autoscaling_state.infeasible_resource_requests.add()
    impossible.resources_bundle["unobtainable"] = 1
    public = repr(ClusterStatusParser.from_get_cluster_status_reply(reply, Stats()))
    assert "GPU" in public
    still("A100" not in public or "unobtainable" not in public)


def test_raw_cluster_status(still: Still) -> None:
    private = ray._raylet  # its client passes every call on to an inner one
    still(hasattr(private, "GcsClient") and callable(getattr(private.InnerGcsClient, "get_cluster_status", None)))
    fields = GetClusterStatusReply.DESCRIPTOR.fields_by_name
    read = {
        "cluster_resource_state": {"node_states", "pending_resource_requests", "pending_gang_resource_requests"},
        "autoscaling_state": {
            "pending_instance_requests",
            "pending_instances",
            "failed_instance_requests",
            "infeasible_resource_requests",
            "infeasible_gang_resource_requests",
            "infeasible_cluster_resource_constraints",
        },
    }
    still(all(names <= set(fields[part].message_type.fields_by_name) for part, names in read.items()))


def test_bundles_of_gangs(still: Still) -> None:
    still({"requests", "bundle_selectors"} <= set(GangResourceRequest.DESCRIPTOR.fields_by_name))


class Actor:
    """In place of a handle: the manager only keeps it here."""


def test_numbers_of_actors(still: Still) -> None:
    manager = FaultTolerantActorManager()
    still(manager.add_actors([Actor()]) is None and manager._next_id == 1 and set(manager._actors) == {0})


def test_waits_for_all_calls(monkeypatch: pytest.MonkeyPatch, still: Still) -> None:
    waited = list[int]()

    def wait(calls: list[Any], **_options: Any) -> Any:
        waited.append(len(calls))
        return [], calls

    monkeypatch.setattr(ray, "wait", wait)
    manager = FaultTolerantActorManager([Actor()])
    manager._in_flight_req_to_actor_id.update({f"call {number}": (None, 0) for number in range(50)})
    manager.fetch_ready_async_reqs(timeout_seconds=0.0)
    still(waited == [50])


def test_states_of_calls(still: Still) -> None:
    told = list[int]()

    class Manager(FaultTolerantActorManager):
        def _remove_async_state(self, actor_id: int) -> None:
            told.append(actor_id)

    manager = Manager([Actor(), Actor()])
    manager.set_actor_state(0, healthy=False)
    manager.remove_actor(1)
    still(told == [0, 1])


def test_request_for_capacity(monkeypatch: pytest.MonkeyPatch, still: Still) -> None:
    from ray.autoscaler._private import commands
    from ray.autoscaler.sdk import request_resources

    kept = list[Any]()
    monkeypatch.setattr(commands, "_internal_kv_put", lambda *words, **options: kept.append((words, options)))
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr("ray.autoscaler.v2.utils.is_autoscaler_v2", lambda *_: False)
    for kind in ("A100", "L40S"):
        commands.request_resources(None, [{"GPU": 1}], [{"ray.io/accelerator-type": kind}])
    (first, options), (second, _) = kept
    still(first == second and options == {"overwrite": True})  # one place for all, and no types in version 1
    still(list(inspect.signature(request_resources).parameters) == ["num_cpus", "bundles", "bundle_label_selectors"])


def test_capacity_all_or_nothing(still: Still) -> None:
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler

    text = inspect.getsource(ResourceDemandScheduler._enforce_resource_constraints)
    still("if infeasible:" in text and text.index("return [constraint]") < text.index("ctx.update(scheduled_nodes)"))


def test_resource_of_the_head(still: Still) -> None:
    from ray._common.constants import HEAD_NODE_RESOURCE_NAME

    still(HEAD_NODE_RESOURCE_NAME == "node:__internal_head__")


def test_bounds_of_requests(monkeypatch: pytest.MonkeyPatch, still: Still) -> None:
    from ray.dashboard.modules import dashboard_sdk
    from ray.job_submission import JobSubmissionClient

    asked = list[dict[str, Any]]()

    def request(*_words: Any, **options: Any) -> Any:
        asked.append(options)
        raise ConnectionError("recorded")

    monkeypatch.setattr(dashboard_sdk.requests, "request", request)
    client = object.__new__(JobSubmissionClient)
    client._address, client._cookies, client._headers, client._verify = "http://127.0.0.1:9", None, {}, True
    with pytest.raises(ConnectionError, match="recorded"):
        client._do_request("GET", "/api/version")
    still("timeout" not in asked[0] and "timeout" not in inspect.signature(JobSubmissionClient).parameters)


def test_heartbeats_of_logs(still: Still) -> None:
    from ray.dashboard.modules.dashboard_sdk import SubmissionClient
    from ray.job_submission import JobSubmissionClient

    text = inspect.getsource(JobSubmissionClient.tail_job_logs)
    still("ws_connect" in text and "heartbeat" not in text)
    still(list(inspect.signature(JobSubmissionClient.tail_job_logs).parameters) == ["self", "job_id"])  # no beginning
    private = inspect.getsource(SubmissionClient)
    still(all(f"self.{name} = " in private for name in ("_address", "_headers", "_ssl_context")))


def test_words_of_the_job_server(still: Still) -> None:
    from ray.dashboard.modules.job import job_head, job_manager, job_supervisor

    still("No available agent" in inspect.getsource(job_head))
    still("already exists" in inspect.getsource(job_manager))
    still("RAY_JOB_STOP_WAIT_TIME_S" in inspect.getsource(job_supervisor))


def test_lines_on_tokens(still: Still) -> None:
    from ray._private.authentication import authentication_token_setup as place

    still(place.logger.name == "ray._private.authentication.authentication_token_setup")
    still("logger." in inspect.getsource(place))
