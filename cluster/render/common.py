"""What every format shares: names, versions, the configuration as it travels."""

from __future__ import annotations

import math
import re
from importlib.metadata import version

from cluster.errors import ClusterError
from configs.addresses import without_login
from configs.load import dump_config
from configs.node_groups import NodeGroup, parse_group
from configs.schema import RunConfig

END_SECONDS = 60  # for a run's actors to end, after it has drained


def ray_version() -> str:
    """That of this environment; nodes and driver must have the same."""
    return version("ray")


def object_name(config: RunConfig, longest: int) -> str:
    """The run's name as Kubernetes allows it. Raises ClusterError if it is longer than the operator takes."""
    name = re.sub(r"[^a-z0-9]+", "-", config.name.lower()).strip("-")
    if not name or not name[0].isalpha():
        raise ClusterError(f"name={config.name}: must begin with a letter to be the name of a Kubernetes object")
    if len(name) > longest:
        raise ClusterError(f"name={config.name}: has {len(name)} characters; the operator takes {longest} at most")
    return name


def travelling_config(config: RunConfig) -> str:
    """The whole configuration as YAML. Raises ClusterError if `root` has a login, or nodes do not share it."""
    if without_login(config.root) != config.root:
        raise ClusterError(
            "root: has a login, which everybody who reads the manifest would see; put AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY into the secret that cluster.secret names"
        )
    if "://" not in config.root and not config.root.startswith("/"):
        raise ClusterError(f"root={config.root}: give a URI (s3://bucket/runs), or an absolute path that nodes share")
    return dump_config(config)


def groups(config: RunConfig) -> list[NodeGroup]:
    return [parse_group(text) for text in config.cluster.gpu_nodes]


def one_group(config: RunConfig, format_name: str) -> NodeGroup | None:
    """The only kind of GPU node, for formats whose jobs have nodes of one kind. Raises ClusterError."""
    found = groups(config)
    if len(found) > 1:
        raise ClusterError(
            f"cluster.gpu_nodes: a job of {format_name} has nodes of one kind, got {len(found)}; name one of them "
            f"(cluster.gpu_nodes=[{config.cluster.gpu_nodes[0]}]), or take --format raycluster"
        )
    return found[0] if found else None


def stop_seconds(config: RunConfig) -> int:
    """How long a run may take to end after SIGTERM."""
    return math.ceil(config.drain_seconds) + END_SECONDS
