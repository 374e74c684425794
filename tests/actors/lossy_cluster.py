"""A pool on a Ray cluster of several nodes, one of which leaves: `python lossy_cluster.py`, in a process of its own.

Prints one line of JSON with what came back. Takes its temporary folder from RAY_TMPDIR, which must be short.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import ray
from ray.cluster_utils import Cluster

from actors.pool import ActorPool
from actors.pool_records import PoolFailure
from orchestration.fleet.ray_cluster import started

NODES, ITEMS, SECONDS = 3, 24, 0.4
LARGE_BYTES = 4 << 20  # of an answer that stays in the object store of its node until it is fetched
_PLACE = "place_of_a_worker"  # each node but the head has one


def worker_class() -> Any:
    """A local class, so that Ray sends it by value."""

    @ray.remote(num_cpus=0, resources={_PLACE: 1})
    class Worker:
        def ping(self) -> str:
            return "pong"

        def apply(self, func: Callable[..., Any], *arguments: Any) -> Any:
            return func(self, *arguments)

        def work(self, item: int) -> str:
            time.sleep(SECONDS)
            return str(ray.get_runtime_context().get_node_id())

        def fill(self, size: int) -> bytes:
            return bytes(size)

    return Worker


def add_node(cluster: Cluster) -> Any:
    return started(cluster.add_node, num_cpus=1, resources={_PLACE: 1}, object_store_memory=80 << 20)


def nodes_of(pool: ActorPool) -> set[str]:
    """The nodes of all actors, once each has told its own."""
    deadline = time.monotonic() + 60
    while "" in (nodes := {pool.members.whereabouts(actor)[0] for actor, _ in pool.members.items()}):
        if time.monotonic() > deadline:
            raise TimeoutError("an actor does not tell where it is")
        time.sleep(0.05)
    return nodes


def main() -> None:
    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20}
    cluster = started(Cluster, initialize_head=True, head_node_args=head)
    nodes = [add_node(cluster) for _ in range(NODES)]
    environment = {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}}
    ray.init(address=cluster.address, log_to_driver=False, runtime_env=environment)
    worker = worker_class()
    # Without a retry: an item whose node left must come all the same.
    pool = ActorPool("evaluator", lambda _: worker.remote(), NODES, timeout=60.0, probe_timeout=5.0, max_retries=0)
    pool.wait_ready(120)
    before = nodes_of(pool)
    pool.submit(LARGE_BYTES, "fill")
    large: list[tuple[int, Any]] = []
    while not large:
        large += pool.poll()
    for item in range(ITEMS):
        pool.submit(item, "work")
    results: list[tuple[int, Any]] = []
    while len(results) < NODES:
        results += pool.poll()
    has_work = [actor for actor, _ in pool.members.items() if pool.load.tickets(actor)]
    cluster.remove_node(nodes[0], allow_graceful=False)
    while len(results) < ITEMS // 2:
        results += pool.poll()
    add_node(cluster)
    while pool.pending:
        results += pool.poll()
    pool.wait_ready(120)
    after = nodes_of(pool)
    failures = [str(result.error) for _, result in results if isinstance(result, PoolFailure)]
    found = {
        "large": len(large[0][1]),
        "items": sorted(item for item, _ in results),
        "failures": failures,
        "worked": len(has_work),
        "before": sorted(before),
        "after": sorted(after),
        "healthy": len(pool.members.healthy()),
        "restarts": pool.members.restarts,
    }
    pool.stop()
    ray.shutdown()
    cluster.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
