"""Pretended GPUs for tests of clusters: a node's label says which type it has, and its CPU does the work.

What is pretended is the name of the device alone. Programs are built, run, checked and timed as on any CPU, so every
verdict is a measured one. An evaluator that is on a node with another label refuses to start, as it does on a GPU of
another type. Only tests know of this: nothing in the product names a CPU otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray

import evaluators.evaluator
from actors.capacity_holder import TYPE_LABEL
from actors.evaluator import EvaluatorActor
from configs.schema import EvaluatorConfig
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.device import Device
from orchestration.fleet import arch_pools


class PretendedGpu(CpuDevice):
    """A CPU under another name."""

    def __init__(self, arch: str, *, threads: int = 1) -> None:
        super().__init__(threads=threads)
        self.arch = self.name = arch

    def versions(self) -> Mapping[str, str]:
        return {**super().versions(), "arch": self.arch}


def open_pretended(arch: str = "auto", *, threads: int = 1) -> Device:
    """The device that the label of this actor's node names, as `open_device` opens the GPU that it sees."""
    if arch == "cpu":
        return CpuDevice(threads=threads)
    here = ray.get_runtime_context().get_node_labels().get(TYPE_LABEL, "cpu")
    if arch != here:
        raise ValueError(f"evaluator.arch is {arch}, but this process sees the architecture {here}")
    return PretendedGpu(arch, threads=threads)


_Actor: Any = EvaluatorActor.__ray_metadata__.modified_class  # type: ignore[attr-defined]


@ray.remote(num_cpus=1)
class PretendedEvaluator(_Actor):
    """The real actor, which opens pretended GPUs."""

    def __init__(self, config: EvaluatorConfig, store: str, guarded: bool = True, place: int = 0) -> None:
        evaluators.evaluator.open_device = open_pretended  # in this actor's own process
        super().__init__(config, store, guarded, place)


def pretend() -> None:
    """Evaluators that this process starts from now on open pretended GPUs."""
    arch_pools.EvaluatorActor = PretendedEvaluator  # type: ignore[misc]
