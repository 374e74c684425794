"""Builds many candidates before anything is measured, with one builder a core, each in a process of its own."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from multiprocessing.util import Finalize
from pathlib import Path

import torch

from configs.schema import LimitsConfig
from evaluators.compile.builder import Builder
from evaluators.failures import InfraError
from evaluators.host.open_device import open_device
from evaluators.records import BuildError, Candidate, Task
from evaluators.tasks import ProgramError

_log = logging.getLogger(__name__)
_GPU_BYTES = 4 << 30  # of a GPU's memory for each builder: contexts of judge and runner, inputs and outputs of a call
_MESSAGE_CHARACTERS = 160
_EXPECTED = (InfraError, ProgramError, OSError, RuntimeError)

Job = tuple[Task, Candidate]
_builder: Builder | None = None


def most_builders() -> int:
    """How many builders fit: one a core, and on a GPU no more than its memory holds. A builder that finds no memory
    there compiles nothing, and its candidate compiles later, when it is judged."""
    cores = len(os.sched_getaffinity(0))
    if not torch.cuda.is_available():
        return cores
    return int(max(1, min(cores, torch.cuda.get_device_properties(0).total_memory // _GPU_BYTES)))


def build_all(
    jobs: Sequence[Job], arch: str, store: Path, limits: LimitsConfig, builders: int, seconds: float | None = None
) -> None:
    """Builds the candidates that `store` does not have, `builders` at once, and returns when all are done. No build
    begins later than `seconds` after the call. The host must have the architecture `arch`. A candidate that does not
    build is logged, and whoever asks for it will get the same error."""
    builders = min(builders, len(jobs))
    if not builders:
        return
    cores = itertools.cycle(sorted(os.sched_getaffinity(0)))
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    queue = context.SimpleQueue()
    for core in itertools.islice(cores, builders):
        queue.put(core)
    pool = ProcessPoolExecutor(builders, context, _open, (arch, store, limits, queue))
    try:
        futures = [pool.submit(_build, *job) for job in jobs]
        wait(futures, timeout=seconds)
    finally:
        pool.shutdown(cancel_futures=True)
    for (task, candidate), future in zip(jobs, futures, strict=True):
        if not future.cancelled() and (problem := future.result()):
            _log.info("%s %s: %s", task.id, candidate.author, problem)


def _open(arch: str, store: Path, limits: LimitsConfig, cores: multiprocessing.SimpleQueue[int]) -> None:
    """Runs in each process of the pool: opens its builder, on a core of its own, for as long as the process lives."""
    global _builder
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends without a traceback
    os.sched_setaffinity(0, {cores.get()})  # compilers start as many threads as they see cores
    _builder = Builder(open_device(arch), store, limits)
    Finalize(_builder, _builder.close, exitpriority=1)


def _build(task: Task, candidate: Candidate) -> str:
    """Builds a candidate; returns why it could not be built, or an empty string."""
    assert _builder is not None
    try:
        built = _builder.build(task, candidate)
    except _EXPECTED as error:
        return repr(error)[:_MESSAGE_CHARACTERS]
    return f"{built.stage}: {built.message}"[:_MESSAGE_CHARACTERS] if isinstance(built, BuildError) else ""
