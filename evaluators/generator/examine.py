"""Draws, digests and audits tasks in worker processes, in an order that does not depend on their number."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch

from evaluators.audit.quick import reason_to_drop
from evaluators.generator.draw import DrawnTask, draw_task
from evaluators.generator.sizes import DEVICES, seconds_of
from evaluators.generator.structure import UntraceableError, structure_digest
from evaluators.records import Task

_MEMORY_BYTES = 16 << 30
_AUDITED_SECONDS = 0.003  # by the estimate, of a call at the sizes of a GPU and a small batch
_AUDIT_SEED = 7
_CHUNK = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Draw:
    """The result of one draw: the task with the digest of its structure, or the reason why there is none."""

    task: DrawnTask | None
    digest: str = ""
    reason: str = ""


class Workers:
    """Processes that examine tasks; one alone is this process itself. Memory of others is limited. Programs of the
    generator are trusted."""

    def __init__(self, jobs: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self._pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start) if jobs > 1 else None
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)  # small tensors; results do not depend on the machine's number of cores

    def draw(self, seed: int, indices: Sequence[int]) -> Iterable[Draw]:
        """The draws of these numbers, in their order."""
        return self._map(_draw, [(f"{seed}/{index}", index) for index in indices])

    def digest(self, tasks: Sequence[Task]) -> Iterable[str]:
        """The digests of foreign tasks; empty for a task that cannot be traced."""
        return self._map(_digest, tasks)

    def audit(self, tasks: Sequence[DrawnTask]) -> Iterable[str]:
        """For each task why it is dropped, or an empty text."""
        return self._map(_audit, tasks)

    def _map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]:
        return self._pool.map(function, items, chunksize=_CHUNK) if self._pool else map(function, items)

    def close(self) -> None:
        torch.set_num_threads(self._threads)
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _start() -> None:
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(silence, stream)


def _draw(place: tuple[str, int]) -> Draw:
    seed, index = place
    drawn = draw_task(random.Random(seed), index)
    if drawn is None:
        return Draw(None, reason="no sizes fit")
    try:
        return Draw(drawn, structure_digest(drawn.task.with_sizes(**drawn.profiles["small"])))
    except UntraceableError:
        return Draw(None, reason="cannot be traced")


def _digest(task: Task) -> str:
    try:
        return structure_digest(task)
    except UntraceableError:
        return ""


def _audit(drawn: DrawnTask) -> str:
    """Audits a task at its small sizes, then at those of a GPU (or, if a call is long, of a CPU) with a small batch:
    some outputs lose their variation only if rows are long."""
    small = drawn.profiles["small"]
    wide = dict(drawn.profiles["cuda"]) | {drawn.drawn.scaled: small[drawn.drawn.scaled]}
    if seconds_of(drawn.drawn.graph, wide, DEVICES["cpu"]) > _AUDITED_SECONDS:
        wide = dict(drawn.profiles["cpu"]) | {drawn.drawn.scaled: small[drawn.drawn.scaled]}
    return reason_to_drop(drawn.task, (small, wide), _AUDIT_SEED)
