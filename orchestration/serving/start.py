"""Starts the evaluators and the builders of a service on Ray, and serves until it is told to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import ray

from actors.log_fields import JsonLogs
from configs.load import ConfigError
from configs.schema import RunConfig
from configs.waits import build_seconds, evaluation_seconds
from evaluators.judge.cpu_look import right_programs
from evaluators.tasks import load_tasks, profile_of
from orchestration.fleet.arch_pools import (
    ArchPools,
    PoolSettings,
    looks_on_cpu,
    make_arch_pools,
    require_capability,
    with_absolute_folders,
)
from orchestration.fleet.capacity import Capacity
from orchestration.fleet.placement import Placement
from orchestration.fleet.ray_cluster import connect
from orchestration.run.lock import locked
from orchestration.serving.clients import Clients, require_tokens
from orchestration.serving.judge import check_guard
from orchestration.serving.service import Service


@dataclass(frozen=True)
class Address:
    """Where the service listens. `port`: 0 takes a free one."""

    host: str
    port: int


def serve(
    config: RunConfig, address: Address, folder: Path, clients: Clients, kept: int, announce: Callable[[str], None]
) -> None:
    """Serves the verdicts of `config.evaluator` until SIGTERM or SIGINT. `folder`: where requests and verdicts are
    kept, of these the newest `kept`. `announce` hears the address once requests are answered.

    Raises ConfigError, TaskError, RunDirectoryError, PoolExhausted, TimeoutError or ServiceFailed.
    """
    require_tokens(address.host, clients)
    require_capability(config.evaluator)
    check_guard(config.guard)
    tasks = {task.id: task for task in load_tasks(config.tasks.source, profile_of(config.evaluator.arch))}
    folder = folder.absolute()
    with ExitStack() as stack:
        stack.enter_context(locked(folder))
        (folder / "store").mkdir(exist_ok=True)
        own_ray = not ray.is_initialized()
        connect(config.ray, config.evaluator.workers + config.evaluator.builders, JsonLogs.of(config))
        if own_ray:
            stack.callback(ray.shutdown)
        cpu_look = looks_on_cpu(config.evaluator)
        pools = _start_pools(config, folder / "store", cpu_look=cpu_look)
        stack.callback(pools.builders.stop)
        stack.callback(pools.evaluators.stop)
        pools.wait_ready()
        service = Service(config, tasks, pools, folder, clients, cpu_look=cpu_look, kept=kept)
        asyncio.run(service.run(address.host, address.port, announce))


def _start_pools(config: RunConfig, store: Path, *, cpu_look: bool) -> ArchPools:
    evaluator = with_absolute_folders(config.evaluator)
    settings = PoolSettings(
        Placement(config), str(store), config.guard.enabled, 0, build_seconds(config), evaluation_seconds(config)
    )
    right = right_programs(config.tasks.source, profile_of(evaluator.arch)) if cpu_look else None
    return make_arch_pools(evaluator, settings, further=_label(evaluator.arch), right_programs=right)


def _label(arch: str) -> str:
    """The architecture, if the cluster's nodes tell theirs, so that evaluators ask for a node of it; empty if they do
    not, or for `cpu`. Raises ConfigError if the cluster has no such GPU and cannot get one."""
    if arch == "cpu":
        return ""
    capacity = Capacity.look()
    if capacity.total.get(arch):
        return arch
    if capacity.total.get(""):
        return ""  # of unknown type: the evaluator itself refuses another GPU
    if arch in capacity.absent([arch]):
        raise ConfigError(f"--arch {arch}: the cluster has no {arch}, and cannot get one; it has {capacity.here()}")
    return arch
