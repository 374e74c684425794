"""Section `cold` of `benchmarks/build.py`: seconds of builds in a fresh cache, beside torch's own way."""

from __future__ import annotations

import os
import queue
import random
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.build_jobs import Farm, Job, jobs_of, mended_jobs, print_row
from benchmarks.build_programs import Asked
from benchmarks.build_torch import floor_seconds, torch_build


def cold(work: Path, arch: str, asked: list[Asked], samples: int) -> dict[str, Any]:
    """Builds all extensions; then compiles a sample of them by torch's own way and without torch's headers, as many at
    once."""
    workers = max(1, (os.cpu_count() or 1) // 4)
    start = time.perf_counter()
    first = Farm(work / "cold", arch)
    toolchain = first.toolchain
    first.glue()
    glue_seconds = time.perf_counter() - start
    first.close()
    before = _cpu_seconds()
    farms: queue.Queue[Farm] = queue.Queue()
    for number in range(workers):
        farms.put(Farm(work / "cold", arch, number))

    def build(job: Job) -> dict[str, Any]:
        farm = farms.get()
        try:
            return _build(farm, job)
        finally:
            farms.put(farm)

    jobs = jobs_of(asked)
    with ThreadPoolExecutor(workers) as pool:
        rows = list(pool.map(build, jobs))
        again = mended_jobs([job for job, row in zip(jobs, rows, strict=True) if row["error"]])
        rows += pool.map(build, again)
    while not farms.empty():
        farms.get().close()
    core_seconds = _cpu_seconds() - before
    chosen = _sample(list(zip(rows, [*jobs, *again], strict=True)), samples)

    def build_by_torch(pair: tuple[dict[str, Any], Job]) -> None:
        row, job = pair
        folder = work / "torch" / job.request.digest("")
        row["torch"] = torch_build(job.request, folder, toolchain)
        row["floor_seconds"] = floor_seconds(job.request, toolchain, folder / "floor")
        print_row(row)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(build_by_torch, chosen))
    return {
        "programs": len(asked),
        "asking": sum(bool(program.requests) for program in asked),
        "rows": rows,
        "glue_seconds": glue_seconds,
        "core_seconds": core_seconds,
        "cores": os.cpu_count(),
        "at_once": workers,
    }


def _cpu_seconds() -> float:
    """CPU time of all child processes that have ended, compilers included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _build(farm: Farm, job: Job) -> dict[str, Any]:
    start = time.perf_counter()
    entry = farm.build(job.request)
    seconds = time.perf_counter() - start
    error = entry.record["error"].partition("\n")[0][:160]
    row = {"program": job.program, "kind": job.kind, "seconds": seconds}
    row |= {"headers": entry.record["headers"], "error": error}
    print_row(row)
    return row


def _sample(pairs: list[tuple[dict[str, Any], Job]], samples: int) -> list[tuple[dict[str, Any], Job]]:
    """Up to `samples` programs that compile as they are; mended ones for the rest of that number; and a quarter as
    many that do not compile."""
    generator = random.Random(0)
    compiling = [pair for pair in pairs if not pair[0]["error"]]
    as_is = [pair for pair in compiling if pair[1].kind == "as it is"]
    mended = [pair for pair in compiling if pair[1].kind == "mended"]
    failing = [pair for pair in pairs if pair[0]["error"] and pair[1].kind == "as it is"]
    as_is = generator.sample(as_is, min(samples, len(as_is)))
    mended = generator.sample(mended, min(max(0, samples - len(as_is)), len(mended)))
    return [*as_is, *mended, *generator.sample(failing, min(samples // 4, len(failing)))]
