"""How fast the build farm compiles, beside torch's own way in the same run, and whether what it gives is right.

Sections: `cold` (every extension that the programs ask for, in a fresh cache; torch's own way and the kernels alone
beside a sample), `same` (what torch's builds and ours of that sample compute, on a GPU), `hit`, `concurrent` (16 cold
builds at once), `edits` (no wrong artifact), `faults`. Each writes its figures to `--out`; `table` alone prints all
that stand there and beside it.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import queue
import random
import re
import resource
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.build_programs import LIMITS, Asked, asked_for, edited
from benchmarks.build_same import compare
from benchmarks.build_tables import print_tables
from benchmarks.build_torch import floor_seconds, torch_build
from benchmarks.mending import mended
from evaluators.compile.builder import CAPABILITIES
from evaluators.compile.cache import BuildCache
from evaluators.compile.farm import ExtensionFarm
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.device import Slot
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.shared.extension import ExtensionRequest

app = typer.Typer(add_completion=False)
_CONCURRENT = 16
_PATHS = re.compile(r":? '/[^']*'( -> '/[^']*')?")
_OUT = Path(f"benchmarks/results/build/{os.cpu_count()}_cores")


class Farm(ExtensionFarm):
    """A farm of its own processes; `number` keeps the users of several apart."""

    def __init__(self, folder: Path, arch: str, number: int = 0) -> None:
        device = CpuDevice()
        self.zygote = ZygoteHandle(device)
        slot = Slot(1500 + number, (), ())
        super().__init__(BuildCache(folder), LIMITS, self.zygote, slot, CAPABILITIES.get(arch, ""))
        self.zygote.start()

    def close(self) -> None:
        """Ends its processes."""
        self.zygote.close()


def _cpu_seconds() -> float:
    """Of all processes that have ended below us, compilers included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclass(frozen=True)
class Job:
    """An extension to build: `kind` says whether as published (or shipped) or mended (`benchmarks/mending.py`)."""

    program: str
    kind: str
    request: ExtensionRequest


def jobs_of(asked: list[Asked]) -> list[Job]:
    """The first extension of each program."""
    return [Job(one.name, "as it is", one.requests[0]) for one in asked if one.requests]


def mended_jobs(jobs: list[Job]) -> list[Job]:
    """What mending makes of those where it finds something."""
    pairs = [(job, mended(job.request)) for job in jobs]
    return [Job(job.program, "mended", request) for job, request in pairs if request]


def cold(work: Path, arch: str, asked: list[Asked], samples: int) -> dict[str, Any]:
    """Builds all extensions; then, as many at a time, those of a sample by torch's own way and without its headers."""
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

    def ours(job: Job) -> dict[str, Any]:
        farm = farms.get()
        try:
            return _cold(farm, job)
        finally:
            farms.put(farm)

    jobs = jobs_of(asked)
    with ThreadPoolExecutor(workers) as pool:
        rows = list(pool.map(ours, jobs))
        again = mended_jobs([job for job, row in zip(jobs, rows, strict=True) if row["error"]])
        rows += pool.map(ours, again)
    while not farms.empty():
        farms.get().close()
    core_seconds = _cpu_seconds() - before
    chosen = _sample(list(zip(rows, [*jobs, *again], strict=True)), samples)

    def theirs(one: tuple[dict[str, Any], Job]) -> None:
        row, job = one
        folder = work / "torch" / job.request.digest("")
        row["torch"] = torch_build(job.request, folder, toolchain)
        row["floor_seconds"] = floor_seconds(job.request, toolchain, folder / "floor")
        _say(row)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(theirs, chosen))
    return {
        "programs": len(asked),
        "asking": sum(bool(one.requests) for one in asked),
        "rows": rows,
        "glue_seconds": glue_seconds,
        "core_seconds": core_seconds,
        "cores": os.cpu_count(),
        "at_once": workers,
    }


def _cold(farm: ExtensionFarm, job: Job) -> dict[str, Any]:
    start = time.perf_counter()
    entry = farm.build(job.request)
    seconds = time.perf_counter() - start
    error = entry.record["error"].partition("\n")[0][:160]
    row = {"program": job.program, "kind": job.kind, "seconds": seconds}
    row |= {"headers": entry.record["headers"], "error": error}
    _say(row)
    return row


def _say(row: dict[str, Any]) -> None:
    print(json.dumps(row)[:500], flush=True)


def _sample(pairs: list[tuple[dict[str, Any], Job]], samples: int) -> list[tuple[dict[str, Any], Job]]:
    """All that compile as they are, mended ones up to the number of samples, and a few that do not compile."""
    generator = random.Random(0)
    good = [one for one in pairs if not one[0]["error"]]
    as_is = [one for one in good if one[1].kind == "as it is"]
    others = [one for one in good if one[1].kind == "mended"]
    failing = [one for one in pairs if one[0]["error"] and one[1].kind == "as it is"]
    as_is = generator.sample(as_is, min(samples, len(as_is)))
    others = generator.sample(others, min(max(0, samples - len(as_is)), len(others)))
    return [*as_is, *others, *generator.sample(failing, min(samples // 4, len(failing)))]


def _good(out: Path, asked: list[Asked]) -> list[ExtensionRequest]:
    """The extensions that `cold` found to compile."""
    rows = json.loads((out / "cold.json").read_text())["rows"]
    good = {(row["program"], row["kind"]) for row in rows if not row["error"]}
    jobs = jobs_of(asked)
    return [job.request for job in [*jobs, *mended_jobs(jobs)] if (job.program, job.kind) in good]


def same(work: Path, arch: str, asked: list[Asked]) -> list[dict[str, str]]:
    """What the programs of the sample compute with our extension and with torch's; after `cold`, in the same call."""
    farm = Farm(work / "cold", arch)
    glue = str(farm.glue().folder / "warpsmith_glue.so")
    pairs = []
    for one in asked:
        jobs = jobs_of([one])
        for job in [*jobs, *mended_jobs(jobs)]:
            entry = farm.build(job.request)
            theirs = work / "torch" / job.request.digest("") / f"{job.request.module}.so"
            if theirs.is_file() and entry.record["glue"]:
                library = str(entry.folder / "extension.so")
                ours = {"library": library, "module": job.request.module, "glue": glue}
                pairs.append((f"{job.program}, {job.kind}", one, ours, ours | {"library": str(theirs), "glue": ""}))
    farm.close()

    def compared(pair: tuple[str, Asked, dict[str, str], dict[str, str]]) -> dict[str, str]:
        name, one, *answers = pair
        found = {"program": name, "outcome": compare(one.program, one.requests[0], answers)}
        print(json.dumps(found), flush=True)
        return found

    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 4)) as pool:
        return list(pool.map(compared, pairs))


def hit(work: Path, arch: str, requests: list[ExtensionRequest]) -> dict[str, Any]:
    """What a farm that is started afresh takes to find what another built."""
    first = Farm(work / "hit", arch)
    entries = [first.build(one) for one in requests]
    first.close()
    again = Farm(work / "hit", arch)
    found = []
    for request, entry in zip(requests, entries, strict=True):
        start = time.perf_counter()
        assert again.build(request) == entry
        found.append(time.perf_counter() - start)
    again.close()
    return {"milliseconds": [1e3 * one for one in found]}


def concurrent(work: Path, arch: str, requests: list[ExtensionRequest]) -> dict[str, Any]:
    """As many cold builds at once as there are requests, each in a process of its own."""
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
    processes = [context.Process(target=build, args=one) for one in enumerate(requests)]
    for process in processes:
        process.start()
    ready.wait()
    start = time.perf_counter()
    go.set()
    found = [done.get() for _ in requests]
    wall = time.perf_counter() - start
    for process in processes:
        process.join()
    assert not any(error for _, error in found), found
    return {"builds": len(requests), "wall_seconds": wall, "seconds": [one for one, _ in found]}


def edits(work: Path, count: int, seed: int) -> dict[str, Any]:
    """Random edits of sources and flags, each asked for in turn and then loaded; then the same of eight processes."""
    context = multiprocessing.get_context("fork")
    jobs = edited(count, seed)
    done = context.Queue()

    def build(number: int, mine: list[tuple[ExtensionRequest, int]]) -> None:
        farm = Farm(work / "edits", "cpu", number)
        for request, value in mine:
            done.put(_value(farm, request, work / f"copies-{number}") == value)
        farm.close()

    def run(shares: list[list[tuple[ExtensionRequest, int]]]) -> tuple[int, float]:
        start = time.perf_counter()
        processes = [context.Process(target=build, args=one) for one in enumerate(shares)]
        for process in processes:
            process.start()
        right = sum(done.get() for share in shares for _ in share)
        for process in processes:
            process.join()
        return right, time.perf_counter() - start

    workers = os.cpu_count() or 1
    right, taken = run([jobs[start::workers] for start in range(workers)])
    same = edited(20, seed + 1)
    same_right, _ = run([same for _ in range(8)])
    entries = len(list((work / "edits").glob("??/*")))
    return {
        "edits": count,
        "right": right,
        "seconds": taken,
        "identical": 8 * len(same),
        "identical_right": same_right,
        "entries": entries,
        "distinct": len({one.digest("") for one, _ in (*jobs, *same)}),
    }


def _value(farm: Farm, request: ExtensionRequest, folder: Path) -> int:
    """What the library that the farm gives says. Loaded from a copy, since a path is loaded once in a process."""
    library = farm.build(request).folder / "extension.so"
    folder.mkdir(exist_ok=True)
    copy = shutil.copy(library, folder / f"{len(os.listdir(folder))}.so")
    return int(ctypes.CDLL(str(copy)).value())


def faults(work: Path, arch: str, request: ExtensionRequest) -> list[dict[str, str]]:
    """What becomes of a build when its compiler is killed, its disk is full, and its artifact is cut short."""
    found = []

    def survives(name: str, farm: Farm, harm: Callable[[], None]) -> None:
        harm()
        start = time.perf_counter()
        try:
            error = farm.build(replace(request, ldflags=(f"-Wl,--defsym,fault_{len(found)}=0",))).record["error"]
            outcome = f"does not compile: {error}" if error else "built"
        except Exception as failure:  # noqa: BLE001  (whatever it is, the table has it)
            outcome = f"{type(failure).__name__}: {_PATHS.sub('', str(failure))}"
        found.append({"fault": name, "outcome": outcome[:200], "seconds": f"{time.perf_counter() - start:.1f}"})

    farm = Farm(work / "faults", arch)
    try:
        farm.glue()
        survives("compiler killed", farm, lambda: threading.Thread(target=_kill_a_compiler).start())
        entry = farm.build(request)
        library = entry.folder / "extension.so"
        library.chmod(0o644)
        library.write_bytes(library.read_bytes()[:1000])
        whole = Farm(work / "faults", arch)
        rebuilt = whole.build(request).folder / "extension.so"
        found.append(
            {"fault": "artifact cut short", "outcome": "built again" if rebuilt.stat().st_size > 1000 else "WRONG"}
        )
        whole.close()
        small = Path(tempfile.mkdtemp(prefix="warpsmith-small-"))
        if ctypes.CDLL(None).mount(b"tmpfs", str(small).encode(), b"tmpfs", 0, b"size=40m") == 0:
            try:
                crowded = Farm(small, arch)
                (small / "filler").write_bytes(b"x" * (40 * 2**20 - (64 << 10)))
                survives("disk full", crowded, lambda: None)
                (small / "filler").unlink()
                survives("disk no longer full", crowded, lambda: None)
                crowded.close()
            finally:
                ctypes.CDLL(None).umount2(str(small).encode(), 2)
    finally:
        farm.close()
    return found


def _kill_a_compiler() -> None:
    """Kills the first compiler proper that appears."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for name in ("cc1plus", "cicc"):
            for status in Path("/proc").glob("[0-9]*/comm"):
                try:
                    if status.read_text().strip() == name:
                        os.kill(int(status.parent.name), signal.SIGKILL)
                        return
                except OSError:
                    continue
        time.sleep(0.01)


_SECTIONS = ("cold", "same", "hit", "concurrent", "edits", "faults")


@app.command()
def main(
    sections: Annotated[list[str] | None, typer.Argument(help="Sections to run; all of them unless given.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the figures; by the number of cores.")] = _OUT,
    programs: Annotated[Path | None, typer.Option(help="Published programs, in CUDA-L1's JSONL format.")] = None,
    arch: Annotated[str, typer.Option(help="What to compile for.")] = "H200",
    samples: Annotated[int, typer.Option(help="Programs to compile by torch's own way, too.")] = 20,
    only: Annotated[str, typer.Option(help="Part of the names of the programs to take; all unless given.")] = "",
    count: Annotated[int, typer.Option(help="Random edits.")] = 1000,
) -> None:
    """Runs sections and prints the tables of what stands in `--out`."""
    chosen = sections or [*_SECTIONS]
    unknown = set(chosen) - ({"table"} if chosen == ["table"] else set(_SECTIONS))
    if unknown or ("same" in chosen and "cold" not in chosen):
        raise typer.BadParameter(
            f"no section {min(unknown)}" if unknown else "`same` needs what `cold` builds before it"
        )
    if chosen == ["table"]:
        for folder in sorted(out.parent.iterdir()):
            print_tables(folder)
        return
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="warpsmith-bench-") as folder:
        work = Path(folder)
        work.chmod(0o755)
        needed = set(chosen) & set(_SECTIONS) - {"edits"}
        asked = asked_for(programs, arch, work / "asked", only) if needed else []
        for section in chosen:
            print(f"== {section}", flush=True)
            if section == "cold":
                found: Any = cold(work, arch, asked, samples)
            elif section == "same":
                found = same(work, arch, asked)
            elif section == "hit":
                found = hit(work, arch, _good(out, asked)[:_CONCURRENT])
            elif section == "concurrent":
                found = concurrent(work, arch, _good(out, asked)[:_CONCURRENT]) | {"cores": os.cpu_count()}
            elif section == "edits":
                found = edits(work, count, 1) | {"cores": os.cpu_count()}
            else:
                found = faults(work, arch, _good(out, asked)[0])
            (out / f"{section}.json").write_text(json.dumps(found, indent=1))
    print_tables(out)


if __name__ == "__main__":
    app()
