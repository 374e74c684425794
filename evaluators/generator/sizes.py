"""Sizes of a drawn task for each device, chosen by an analytic estimate of a call's time. Nothing is measured.

Bytes count what every operator reads and writes in eager mode; multiply-adds count for products and convolutions. The
rates below are round figures of one CPU core and of one H200, so that estimates are right within a small factor.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluators.generator.builder import Drawn
from evaluators.generator.elementwise import ELEMENTWISE
from evaluators.generator.graph import Graph, Node, count, value_of
from evaluators.generator.operators import OPERATORS, is_view


@dataclass(frozen=True)
class Device:
    """Rates of a device, and the range of a call's time, all in seconds, bytes and operations."""

    overhead: float  # of an operator
    bandwidth: float
    flops: float  # single precision
    half_flops: float
    grouped_flops: float  # of convolutions with a group for each channel
    weight: float  # of an element, for a unit of `Elementwise.weight`
    slow: float  # of an element, for a unit of `_SLOW`
    least: float
    most: float
    memory: float  # bytes of all results together


DEVICES = {
    "cpu": Device(4e-6, 1.7e10, 6.5e10, 2e9, 5e9, 1.5e-10, 1e-9, 0.5e-3, 5e-3, 4e8),
    "cuda": Device(4e-6, 3.2e12, 4.5e13, 4e14, 1e13, 1e-13, 0.0, 20e-6, 2e-3, 8e9),
}

_SLOW = {"var": (3, 10), "std": (3, 10), "logsumexp": (2, 20), "argmax": (2, 10), "argmin": (2, 10), "norm": (1, 5),
         "norm1": (1, 5), "cosine": (4, 4), "max_pool1d": (3, 3), "max_pool2d": (4, 4), "avg_pool1d": (3, 3),
         "avg_pool2d": (4, 4)}  # fmt: skip
"""Operators whose kernels on a CPU are not vectorised: nanoseconds for each element read, along the last axis and along
another one."""
_HALF_ON_CPU = 5  # nanoseconds for each element of an operator in half precision

ROLES: dict[str, dict[str, tuple[int, ...]]] = {
    "features": {
        "cpu": (64, 96, 128, 192, 256, 384, 512),
        "cuda": (512, 768, 1024, 1536, 2048, 3072, 4096),
        "small": (24, 32, 40, 48),
    },
    "hidden": {"cpu": (64, 96, 128, 192, 256), "cuda": (512, 768, 1024, 1280, 2048), "small": (20, 28, 36)},
    "width": {
        "cpu": (128, 256, 500, 512, 1000, 1024, 2048, 4096),
        "cuda": (1000, 1024, 2048, 3000, 4096, 8192, 12288, 16384),
        "small": (19, 24, 33, 40),
    },
    "channels": {"cpu": (8, 16, 24, 32, 48, 64), "cuda": (32, 48, 64, 96, 128, 192, 256), "small": (8, 12, 16)},
    "space": {"cpu": (14, 16, 20, 28, 32), "cuda": (28, 32, 56, 64, 112), "small": (8, 10, 12)},
    "volume": {"cpu": (6, 8, 10, 12), "cuda": (16, 20, 24, 32), "small": (5, 6)},
    "length": {"cpu": (32, 64, 100, 128, 256), "cuda": (128, 256, 500, 512, 1024, 2048), "small": (9, 12, 14)},
    "sequence": {"cpu": (32, 48, 64, 128), "cuda": (128, 256, 512, 1024), "small": (9, 12)},
    "heads": {"cpu": (2, 4), "cuda": (4, 8, 12, 16), "small": (2,)},
    "head_dim": {"cpu": (16, 32, 64), "cuda": (32, 64, 128), "small": (8,)},
    "groups": {"cpu": (2, 4), "cuda": (2, 4), "small": (2,)},
    "classes": {"cpu": (10, 64, 100), "cuda": (100, 256, 1000), "small": (11, 13)},
    "vocabulary": {"cpu": (1000, 5000), "cuda": (32000, 50000), "small": (50, 60)},
}
BATCHES = sorted({factor << shift for shift in range(21) for factor in (1, 3, 5)})
_SMALL_BATCHES = (5, 6, 7)
_TRIES = 12


def choose_sizes(drawn: Drawn, rng: random.Random) -> dict[str, dict[str, int]] | None:
    """The sizes by profile: `cpu`, `cuda`, and `small` for checks. None if no choice fits a device."""
    profiles = {}
    for profile, device in DEVICES.items():
        for _ in range(_TRIES):
            if sizes := _fit(drawn, profile, device, rng):
                profiles[profile] = sizes
                break
        else:
            return None
    profiles["small"] = _draw(drawn, "small", rng) | {drawn.scaled: rng.choice(_SMALL_BATCHES)}
    return {profile: {name: sizes[name] for name in drawn.roles} for profile, sizes in profiles.items()}


def _draw(drawn: Drawn, profile: str, rng: random.Random) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, role in drawn.roles.items():
        if role.isdigit():
            sizes[name] = int(role)
        elif name != drawn.scaled:
            sizes[name] = rng.choice(ROLES[role][profile])
    return sizes


def _fit(drawn: Drawn, profile: str, device: Device, rng: random.Random) -> dict[str, int] | None:
    """Draws sizes and scales one of them, so that a call takes about a drawn time."""
    sizes = _draw(drawn, profile, rng)
    target = math.exp(rng.uniform(math.log(device.least * 1.3), math.log(device.most * 0.8)))
    low, high = 0, len(BATCHES) - 1
    while low < high:
        middle = (low + high) // 2
        if seconds_of(drawn.graph, sizes | {drawn.scaled: BATCHES[middle]}, device) < target:
            low = middle + 1
        else:
            high = middle
    sizes[drawn.scaled] = max(2, BATCHES[low])
    seconds = seconds_of(drawn.graph, sizes, device)
    held = sum(_bytes(node) * count(node.shape, sizes) for node in drawn.graph.nodes)
    return sizes if device.least <= seconds <= device.most and held <= device.memory else None


def seconds_of(graph: Graph, sizes: Mapping[str, Any], device: Device) -> float:
    """The estimated seconds of one call in eager mode."""
    total = 0.0
    for node in graph.nodes:
        if node.is_leaf or is_view(node):
            continue
        work = flops_of(graph, node, sizes) / _rate(node, device)
        work += _weight(node) * count(node.shape, sizes) * device.weight
        if node.args:
            work += _slow(graph, node) * count(graph.nodes[node.args[0]].shape, sizes) * device.slow
        total += device.overhead + max(bytes_of(graph, node, sizes) / device.bandwidth, work)
    return total


def _rate(node: Node, device: Device) -> float:
    if str(node.attrs.get("groups", "1")) not in ("1", "2", "4"):
        return device.grouped_flops
    return device.flops if node.dtype == "float32" else device.half_flops


def _slow(graph: Graph, node: Node) -> float:
    """What makes an element slow on a CPU, in nanoseconds."""
    source = graph.nodes[node.args[0]]
    last, other = _SLOW.get(node.op, (0, 0))
    is_last = node.attrs.get("dim", -1) in (-1, len(source.shape) - 1)
    plain = not is_view(source) and not source.attrs.get("layout")
    return (last if is_last and plain else other) + (_HALF_ON_CPU if "float16" in source.dtype else 0)


def bytes_of(graph: Graph, node: Node, sizes: Mapping[str, Any]) -> float:
    """The bytes that a node's operator reads and writes."""
    passes = 2 if node.op in OPERATORS and OPERATORS[node.op].kind == "row" else 1
    read = sum(_bytes(graph.nodes[arg]) * count(graph.nodes[arg].shape, sizes) for arg in node.args)
    return passes * read + _bytes(node) * count(node.shape, sizes)


def flops_of(graph: Graph, node: Node, sizes: Mapping[str, Any]) -> float:
    """Two for each multiply-add of products and convolutions; 0 for other operators."""
    if node.op not in OPERATORS or not node.args:
        return 0.0
    kind, first = OPERATORS[node.op].kind, graph.nodes[node.args[0]].shape
    if kind == "product" and first:
        return 2.0 * count(node.shape, sizes) * (1 if node.op == "outer" else value_of(first[-1], sizes))
    if kind == "conv":
        rank = len(first) - 2
        groups = value_of(str(node.attrs["groups"]), sizes)
        inner = value_of(first[1], sizes) * int(node.attrs["kernel"]) ** rank
        larger = max(count(node.shape, sizes), count(first, sizes) if "transpose" in node.op else 0)
        return 2.0 * larger * inner / groups
    return 0.0


def _weight(node: Node) -> float:
    if node.op in ELEMENTWISE:
        return ELEMENTWISE[node.op].weight
    return {"row": 6.0, "scan": 8.0, "reduction": 1.0, "pool": 4.0, "index": 3.0}.get(OPERATORS[node.op].kind, 0.0)


def _bytes(node: Node) -> int:
    return {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "bool": 1}[node.dtype]
