"""Audits many tasks: each in a process of its own, with a limit on time and memory, at sizes that a CPU can compute.

One task that hangs, crashes or wants too much stops nothing; its audit says so. Nothing is printed here, and nothing
that the tasks print comes out.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from evaluators.audit.probe import audit_task
from evaluators.audit.records import FindingKind, TaskAudit, audit_table
from evaluators.records import Task
from evaluators.shared import nesting
from evaluators.tasks import TaskProgram
from evaluators.tasks.shapes import input_sizes

_SECONDS = 900.0  # most take a few; what is found takes twenty times as long to confirm
_MEMORY_BYTES = 8 << 30
_PRELOADED = [__name__, "torch._dynamo", "torch.fx.experimental.symbolic_shapes"]  # slow to import
_LEAST_SIZE = 2  # so that batch statistics exist
_SMALL = 16  # such a size is halved only where a call would be four times what follows:
_MORE_WHERE_SMALL = 4.0
_MOST_HELD = 2**20  # elements of all inputs, and of all outputs
_MOST_WRITTEN = 2**25  # elements that all operations of a call give
_MOST_FLOPS = 2**32  # of a call
_MOST_OPERATIONS = 4000  # of a call: a recurrent network has as many as its sequence is long
_LONG = (1e300, 1e300)
_UNKNOWN = (float("inf"), float("inf"))


def audit_tasks(
    tasks: Sequence[Task], *, jobs: int = 1, seconds: float = _SECONDS, memory_bytes: int = _MEMORY_BYTES
) -> Iterator[TaskAudit]:
    """Audits of the tasks, in their order, each as soon as those before it are there; `jobs` run side by side.

    `seconds` and `memory_bytes` bound each task's process; what exceeds them has a `failure` for an audit.
    Raises ValueError for jobs below 1.
    """
    if jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {jobs}")
    threads = max(1, (os.cpu_count() or 1) // jobs)
    return _audits(tasks, jobs, partial(audit_apart, seconds=seconds, memory_bytes=memory_bytes, threads=threads))


def _audits(tasks: Sequence[Task], jobs: int, audit: Callable[[Task], TaskAudit]) -> Iterator[TaskAudit]:
    pool = ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(audit, tasks)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def counted(audits: Sequence[TaskAudit]) -> str:
    """How many tasks are marked, by kind (a task can have several), and how many could not be audited."""
    kinds = Counter(kind for audit in audits for kind in audit.kinds)
    each = ", ".join(f"{kinds[kind]} {kind}" for kind in FindingKind if kinds[kind])
    marked = f"{sum(bool(audit.findings) for audit in audits)} marked" + (f" ({each})" if each else "")
    return f"{len(audits)} tasks: {marked}, {sum(bool(audit.failure) for audit in audits)} not audited"


def write_audits(audits: Iterable[TaskAudit], path: Path) -> None:
    """Writes the audits as Parquet (`evaluators.audit.probe.AUDIT_SCHEMA`), whole or not at all. Raises OSError."""
    partial_path = path.with_name(f"{path.name}.partial")
    pq.write_table(audit_table(audits), partial_path)
    partial_path.replace(path)


def read_audits(path: Path) -> list[TaskAudit]:
    """The audits that `write_audits` wrote. Raises OSError."""
    return [TaskAudit.from_row(row) for row in pq.read_table(path).to_pylist()]


def audit_apart(
    task: Task, *, seconds: float = _SECONDS, memory_bytes: int = _MEMORY_BYTES, threads: int = 1
) -> TaskAudit:
    """Audits one task in a process that ends with it, at sizes reduced to what a CPU can compute."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_audit_here, args=(theirs, task, seconds, memory_bytes, threads), daemon=True)
    start = time.perf_counter()
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            return TaskAudit.failed(task, f"not done within {seconds:.0f} s", time.perf_counter() - start)
        return ours.recv()
    except EOFError:
        process.join()
        reason = f"its process ended with exit code {process.exitcode} (negative: by that signal)"
        return TaskAudit.failed(task, reason, time.perf_counter() - start)
    finally:
        process.kill()
        process.join()
        ours.close()


def _audit_here(connection: Connection, task: Task, seconds: float, memory_bytes: int, threads: int) -> None:
    """In the process apart."""
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    processor_seconds = int(seconds * threads) + 5  # ends it where nobody is left to
    resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    torch.set_num_threads(threads)
    sizes, larger = audited_sizes(task)
    connection.send(audit_task(task, (sizes,) if larger == sizes else (sizes, larger)))


# Sizes


class _TooLong(Exception):
    pass


class _Written(TorchDispatchMode):
    """Counts the elements that operations give. Raises _TooLong after `_MOST_OPERATIONS`, which take seconds."""

    elements = 0
    operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        if self.operations > _MOST_OPERATIONS:
            raise _TooLong
        result = func(*args, **(kwargs or {}))
        self.elements += sum(one.numel() for one in nesting.flatten(result)[1])
        return result


def audited_sizes(task: Task) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Two overrides of the sizes that only `get_inputs` depends on. The first halves the largest of these again and
    again until inputs, outputs and work are small, the second stops one halving earlier: what is an accident of the
    first is not found there. Both are empty where nothing has to be, or can be, reduced."""
    sizes = input_sizes(task)
    reduced: dict[str, int] = {}
    before = reduced
    load = _load(task)
    while shrinkable := [name for name, size in sizes.items() if size > _LEAST_SIZE]:
        name = max(shrinkable, key=sizes.__getitem__)
        if load[0] <= (1.0 if sizes[name] > _SMALL else _MORE_WHERE_SMALL):
            break
        trial = {**reduced, name: max(_LEAST_SIZE, sizes[name] // 2)}
        smaller = _load(task.with_sizes(**trial))
        if smaller < load or smaller == load == _LONG:
            before, reduced, load = reduced, trial, smaller
            sizes[name] = trial[name]
        else:
            del sizes[name]  # the program does not run at that size, or is no smaller
    return reduced, before


def _load(task: Task) -> tuple[float, float]:
    """The inputs, the outputs and the work of a call over what an audit allows of each: the most of these, and their
    sum; `_LONG` for too many operations, `_UNKNOWN` where it does not run. Nothing is computed: tensors have shapes
    alone."""
    device = torch.device("meta")
    try:
        program = TaskProgram(task, device)
        inputs = program.inputs(0)
        model = program.model(0, program.init_inputs(0))
        with torch.no_grad(), device, FlopCounterMode(display=False) as flops, _Written() as written:
            outputs = model(*inputs)
    except _TooLong:
        return _LONG
    except Exception:  # noqa: BLE001  (in any way, and some only without values)
        return _UNKNOWN
    shares = [sum(one.numel() for one in nesting.flatten(some)[1]) / _MOST_HELD for some in (inputs, outputs)]
    shares += [written.elements / _MOST_WRITTEN, flops.get_total_flops() / _MOST_FLOPS]
    return max(shares), sum(shares)
