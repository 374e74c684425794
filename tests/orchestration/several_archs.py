"""`warpsmith` on a Ray cluster of its own, whose nodes pretend to have GPUs of two types: `python -m ... run CONFIG`.

Takes its temporary folder from RAY_TMPDIR, which must be short.
"""

from __future__ import annotations

import os

from ray.cluster_utils import Cluster

from actors.capacity_holder import TYPE_LABEL
from orchestration.commands.main import main
from orchestration.fleet.ray_cluster import started
from tests.orchestration.pretended import pretend

ARCHS = ("A100", "L40S")


def start_cluster() -> Cluster:
    """A head for all other roles, and a node with one GPU for each type."""
    head = {"num_cpus": 16, "include_dashboard": False, "object_store_memory": 200 << 20}
    cluster = started(Cluster, initialize_head=True, head_node_args=head)
    for arch in ARCHS:
        started(cluster.add_node, num_cpus=2, num_gpus=1, labels={TYPE_LABEL: arch}, object_store_memory=80 << 20)
    return cluster


if __name__ == "__main__":
    cluster = start_cluster()
    os.environ["RAY_ADDRESS"] = cluster.address
    pretend()
    try:
        main()
    finally:
        cluster.shutdown()
