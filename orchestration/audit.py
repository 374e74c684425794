"""Audits many tasks: each in a process of its own, with a limit on time and memory, at sizes that a CPU can compute.

One task that hangs, crashes or wants too much stops nothing; its audit says so. Nothing is printed here, and nothing
that the tasks print comes out.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from evaluators import tree
from evaluators.audit import TaskAudit, audit_table, audit_task
from evaluators.inputs import _constants, shape_variants
from evaluators.records import Task, parse_source
from evaluators.tasks import TaskProgram, program_source

_SECONDS = 120.0
_MEMORY_BYTES = 8 << 30
_LEAST_SIZE = 2  # so that batch statistics exist
_MOST_INPUTS = 2**20  # elements of all inputs
_MOST_WRITTEN = 2**26  # elements that all operations of a call give
_MOST_FLOPS = 2**32  # of a call


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
    audit = partial(audit_apart, seconds=seconds, memory_bytes=memory_bytes, threads=threads)
    pool = ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(audit, tasks)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def write_audits(audits: Iterable[TaskAudit], path: Path) -> None:
    """Writes the audits as Parquet (`evaluators.audit.AUDIT_SCHEMA`), whole or not at all. Raises OSError."""
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
    context.set_forkserver_preload([__name__])
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_audit_here, args=(theirs, task, memory_bytes, threads), daemon=True)
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


def _audit_here(connection: Connection, task: Task, memory_bytes: int, threads: int) -> None:
    """In the process apart."""
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    torch.set_num_threads(threads)
    sizes, larger = audited_sizes(task)
    connection.send(audit_task(task, (sizes,) if larger == sizes else (sizes, larger)))


# Sizes


class _Written(TorchDispatchMode):
    """Counts the elements that operations give."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.elements += sum(one.numel() for one in tree.flatten(result)[1])
        return result


def audited_sizes(task: Task) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Two overrides of the sizes that only `get_inputs` depends on. The first halves the largest of these again and
    again until inputs and work are small, the second stops one halving earlier: what is an accident of the first is not
    found there. Both are empty where nothing has to be, or can be, reduced."""
    variants = shape_variants(task)
    known = _constants(parse_source(program_source(task)).body)
    sizes = {name: known[name] for name in (variants[0] if variants else ())}
    reduced: dict[str, int] = {}
    before = reduced
    load = _load(task)
    while load > 1.0 and (shrinkable := [name for name, size in sizes.items() if size > _LEAST_SIZE]):
        name = max(shrinkable, key=sizes.__getitem__)
        trial = {**reduced, name: max(_LEAST_SIZE, sizes[name] // 2)}
        smaller = _load(task.with_sizes(**trial))
        if smaller < load or smaller == load == float("inf"):
            before, reduced, load = reduced, trial, smaller
            sizes[name] = trial[name]
        else:
            del sizes[name]  # the program does not run at that size, or is no smaller
    return reduced, before


def _load(task: Task) -> float:
    """The inputs or the work of a call over what an audit allows of it, whichever is more; infinity where the program
    does not run. Nothing is computed: its tensors have shapes alone."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        try:
            program = TaskProgram(task)
            inputs = program.inputs(0)
            model = program.model(0, program.init_inputs(0))
            with FlopCounterMode(display=False) as flops, _Written() as written:
                model(*inputs)
        except Exception:  # noqa: BLE001  (in any way, and some only without values)
            return float("inf")
    given = sum(one.numel() for one in tree.flatten(inputs)[1])
    return max(given / _MOST_INPUTS, written.elements / _MOST_WRITTEN, flops.get_total_flops() / _MOST_FLOPS)
