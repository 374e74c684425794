"""The cluster that manifests are rendered for, a part of `configs.schema`. Imports neither torch nor ray."""

from __future__ import annotations

from dataclasses import dataclass, field

from configs.fields import bounded


@dataclass
class ClusterConfig:
    """What `warpsmith cluster render` writes manifests of (docs/cluster.md). A run itself reads none of it."""

    image: str = ""  # container image of all nodes, with Warpsmith installed; KubeRay needs it
    # Groups of GPU nodes: `H100x8:0-4` are 0 to 4 nodes with 8 H100 each, by Ray's accelerator names. If there are
    # several, each names the label of its Kubernetes nodes: `H100x8:0-4@nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3`.
    gpu_nodes: list[str] = field(default_factory=list)
    cpu_nodes: str = "0-4"  # fewest and most nodes without a GPU, for builders; 0-0 leaves the group out
    cpus: int = bounded(16, 1)  # cores of a node without a GPU
    memory_gib: int = bounded(64, 1)  # GiB of memory of such a node
    cpus_per_gpu: int = bounded(12, 1)  # cores of a GPU node, for each of its GPUs
    memory_gib_per_gpu: int = bounded(128, 1)  # GiB of memory of a GPU node, for each of its GPUs
    head_cpus: int = bounded(8, 1)  # cores of the head, which runs the driver and no other role
    head_memory_gib: int = bounded(32, 4)  # GiB of memory of the head
    idle_seconds: int = bounded(300, 10)  # after which a node with nothing to do is given back
    namespace: str = "default"  # Kubernetes namespace
    # A secret of that namespace whose keys become environment variables of all nodes: credentials of `root` and MLflow.
    secret: str = ""
    volume_claim: str = ""  # a persistent volume claim that all nodes mount at `root`, if that is a path
    redis: str = ""  # `HOST:PORT` of a Redis in which the head keeps its state, so that it may be restarted
    redis_secret: str = ""  # a secret whose key `password` is that of Redis
    queue: str = ""  # Kueue's local queue; empty leaves Kueue out
    # `LABEL=VALUE` of the pods of a Prometheus that may read metrics, at port 8080 of every node; empty lets none in.
    prometheus: str = ""
    # Linux capabilities of GPU and CPU nodes that contain candidates (docs/guides/evaluating.md), such as SYS_ADMIN.
    capabilities: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # of the `ray up` file: addresses of fixed hosts, the head first
    ssh_user: str = "ubuntu"  # of these hosts
