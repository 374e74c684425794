"""Sections `hit`, `concurrent` and `edits` of `benchmarks/build.py`: processes that share a cache of builds."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks.build_jobs import Farm
from benchmarks.build_programs import edited
from evaluators.shared.extension import ExtensionRequest

_SHARED_EDITS = 20  # that each of this many processes asks for:
_SHARERS = 8

Edit = tuple[ExtensionRequest, int]


def hit(work: Path, arch: str, requests: list[ExtensionRequest]) -> dict[str, Any]:
    """Milliseconds that a newly started farm takes to find what another farm has built."""
    first = Farm(work / "hit", arch)
    entries = [first.build(request) for request in requests]
    first.close()
    again = Farm(work / "hit", arch)
    seconds = []
    for request, entry in zip(requests, entries, strict=True):
        start = time.perf_counter()
        assert again.build(request) == entry
        seconds.append(time.perf_counter() - start)
    again.close()
    return {"milliseconds": [1e3 * value for value in seconds]}


def concurrent(work: Path, arch: str, requests: list[ExtensionRequest]) -> dict[str, Any]:
    """Builds all requests at once in a cold cache, each in a process of its own."""
    context = multiprocessing.get_context("fork")
    ready, go, done = context.Barrier(len(requests) + 1), context.Event(), context.Queue()

    def build(number: int, request: ExtensionRequest) -> None:
        farm = Farm(work / "concurrent", arch, number)
        farm.glue()
        ready.wait()
        go.wait()
        start = time.perf_counter()
        entry = farm.build(request)
        done.put((time.perf_counter() - start, entry.record["error"]))
        farm.close()

    Farm(work / "concurrent", arch).glue()
    processes = [context.Process(target=build, args=job) for job in enumerate(requests)]
    for process in processes:
        process.start()
    ready.wait()
    start = time.perf_counter()
    go.set()
    builds = [done.get() for _ in requests]
    wall = time.perf_counter() - start
    for process in processes:
        process.join()
    assert not any(error for _, error in builds), builds
    return {"builds": len(requests), "wall_seconds": wall, "seconds": [seconds for seconds, _ in builds]}


def edits(work: Path, count: int, seed: int) -> dict[str, Any]:
    """Builds random edits of sources and flags one after the other and loads each; then eight processes build the same
    edits at once. Counts how many of the loaded libraries are the right ones."""
    jobs = edited(count, seed)
    workers = os.cpu_count() or 1
    right, seconds = _build_edits(work, [jobs[start::workers] for start in range(workers)])
    shared = edited(_SHARED_EDITS, seed + 1)
    shared_right, _ = _build_edits(work, [shared for _ in range(_SHARERS)])
    entries = len(list((work / "edits").glob("??/*")))
    return {
        "edits": count,
        "right": right,
        "seconds": seconds,
        "identical": _SHARERS * len(shared),
        "identical_right": shared_right,
        "entries": entries,
        "distinct": len({request.digest("") for request, _ in (*jobs, *shared)}),
    }


def _build_edits(work: Path, shares: list[list[Edit]]) -> tuple[int, float]:
    """Builds each share in a process of its own. Returns how many libraries gave the right value, and the seconds."""
    context = multiprocessing.get_context("fork")
    done = context.Queue()

    def build(number: int, share: list[Edit]) -> None:
        farm = Farm(work / "edits", "cpu", number)
        for request, value in share:
            done.put(_value(farm, request, work / f"copies-{number}") == value)
        farm.close()

    start = time.perf_counter()
    processes = [context.Process(target=build, args=job) for job in enumerate(shares)]
    for process in processes:
        process.start()
    right = sum(done.get() for share in shares for _ in share)
    for process in processes:
        process.join()
    return right, time.perf_counter() - start


def _value(farm: Farm, request: ExtensionRequest, folder: Path) -> int:
    """What the farm's library returns. Loads a copy of it, since a process loads the library of a path only once."""
    library = farm.build(request).folder / "extension.so"
    folder.mkdir(exist_ok=True)
    copy = shutil.copy(library, folder / f"{len(os.listdir(folder))}.so")
    return int(ctypes.CDLL(str(copy)).value())
