"""Groups of nodes as `cluster.gpu_nodes` and `cluster.cpu_nodes` write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_RANGE = r"(?P<least>\d+)-(?P<most>\d+)"
_NODES = re.compile(_RANGE)
_GROUP = re.compile(
    rf"(?P<accelerator>[A-Z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*?)x(?P<gpus>\d+):{_RANGE}(?:@(?P<key>[^=\s]+)=(?P<value>\S+))?"
)


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of one kind. `selector`: the label of Kubernetes nodes that they may run on, if there is one."""

    accelerator: str
    gpus: int
    least: int
    most: int
    selector: tuple[str, str] | None = None


def parse_group(text: str) -> NodeGroup:
    """`H100x8:0-4`, perhaps with `@LABEL=VALUE`. Raises ValueError."""
    found = _GROUP.fullmatch(text)
    if found is None or int(found["gpus"]) < 1 or not 0 <= int(found["least"]) <= int(found["most"]) >= 1:
        raise ValueError(f"must be like H100x8:0-4 (type, GPUs a node, fewest and most nodes), got {text!r}")
    selector = (found["key"], found["value"]) if found["key"] else None
    return NodeGroup(found["accelerator"], int(found["gpus"]), int(found["least"]), int(found["most"]), selector)


def parse_nodes(text: str) -> tuple[int, int]:
    """`0-4`: fewest and most. Raises ValueError."""
    found = _NODES.fullmatch(text)
    if found is None or int(found["least"]) > int(found["most"]):
        raise ValueError(f"must be the fewest and most nodes, like 0-4, got {text!r}")
    return int(found["least"]), int(found["most"])
