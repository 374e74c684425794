"""Audits many tasks, each in a process of its own, with limits on time and memory.

A task that hangs, crashes or asks for too much must never stop the others; its audit says so. Nothing is printed here,
and no output of the tasks gets out.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow.parquet as pq
import torch

from evaluators.audit.probe import audit_task
from evaluators.audit.records import FindingKind, TaskAudit, audit_table
from evaluators.audit.sizes import audited_sizes
from evaluators.records import Task

_SECONDS = 900.0  # most audits take a few seconds; to confirm findings takes twenty times as long
_MEMORY_BYTES = 8 << 30
_PRELOADED = [__name__, "torch._dynamo", "torch.fx.experimental.symbolic_shapes"]  # slow to import


def audit_tasks(
    tasks: Sequence[Task], *, jobs: int = 1, seconds: float = _SECONDS, memory_bytes: int = _MEMORY_BYTES
) -> Iterator[TaskAudit]:
    """Yields the tasks' audits in their order, each as soon as those before it are done; `jobs` run at the same time.

    `seconds` and `memory_bytes` bound each task's process. The audit of a task that exceeds them is a `failure`.
    Raises ValueError for jobs below 1.
    """
    if jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {jobs}")
    threads = max(1, (os.cpu_count() or 1) // jobs)
    audit = partial(audit_in_process, seconds=seconds, memory_bytes=memory_bytes, threads=threads)
    return _audits(tasks, jobs, audit)


def _audits(tasks: Sequence[Task], jobs: int, audit: Callable[[Task], TaskAudit]) -> Iterator[TaskAudit]:
    pool = ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(audit, tasks)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def summarise_audits(audits: Sequence[TaskAudit]) -> str:
    """A sentence with the number of marked tasks, by kind (a task can have several), and of tasks without an audit."""
    kinds = Counter(kind for audit in audits for kind in audit.kinds)
    each = ", ".join(f"{kinds[kind]} {kind}" for kind in FindingKind if kinds[kind])
    marked = f"{sum(bool(audit.findings) for audit in audits)} marked" + (f" ({each})" if each else "")
    return f"{len(audits)} tasks: {marked}, {sum(bool(audit.failure) for audit in audits)} not audited"


def write_audits(audits: Iterable[TaskAudit], path: Path) -> None:
    """Writes the audits as Parquet (`evaluators.audit.records.AUDIT_SCHEMA`), whole or not at all. Raises OSError."""
    partial_path = path.with_name(f"{path.name}.partial")
    pq.write_table(audit_table(audits), partial_path)
    partial_path.replace(path)


def read_audits(path: Path) -> list[TaskAudit]:
    """Reads the audits that `write_audits` wrote. Raises OSError."""
    return [TaskAudit.from_row(row) for row in pq.read_table(path).to_pylist()]


def audit_in_process(
    task: Task, *, seconds: float = _SECONDS, memory_bytes: int = _MEMORY_BYTES, threads: int = 1
) -> TaskAudit:
    """Audits one task in a process of its own, at sizes that a CPU can compute."""
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
    """Runs in that process: audits the task and sends the result."""
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    processor_seconds = int(seconds * threads) + 5  # ends the process even if its parent is gone

    resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    torch.set_num_threads(threads)
    sizes, larger = audited_sizes(task)
    connection.send(audit_task(task, (sizes,) if larger == sizes else (sizes, larger)))
