"""How fast the build farm compiles, beside torch's own way in the same run, and whether what it gives is right.

Sections: `cold` (every extension that the programs ask for, in a fresh cache; torch's own way and the kernels alone
beside a sample), `hit`, `concurrent` (16 cold builds at once), `edits` (no wrong artifact), `faults`, `table`. Each
writes its figures to `--out`; `table` prints all that stand there.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.build_programs import LIMITS, Asked, asked_for, edited, floor_seconds, torch_seconds
from evaluators.build.builder import CAPABILITIES
from evaluators.build.cache import BuildCache
from evaluators.build.extension import ExtensionRequest
from evaluators.build.farm import ExtensionFarm
from evaluators.device import Slot
from evaluators.device.cpu import CpuDevice
from evaluators.zygote_handle import ZygoteHandle

app = typer.Typer(add_completion=False)
_CONCURRENT = 16


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


def cold(work: Path, arch: str, asked: list[Asked], samples: int, seconds: float) -> dict[str, Any]:
    """Builds all extensions; a sample of those that compile also by torch's own way and without torch's headers."""
    rows: list[dict[str, Any]] = [{"program": one.program, "asked": len(one.requests)} for one in asked]
    before, deadline = _cpu_seconds(), time.monotonic() + seconds
    farm = Farm(work / "cold", arch)
    built = []
    try:
        start = time.perf_counter()
        farm.glue()
        glue_seconds = time.perf_counter() - start
        for row, one in zip(rows, asked, strict=True):
            if one.requests and time.monotonic() < deadline:
                row |= _cold(farm, one.requests[0])
                print(json.dumps(row), flush=True)
                if not row["error"]:
                    built.append((row, one.requests[0]))
    finally:
        farm.close()
    core_seconds = _cpu_seconds() - before
    for row, request in random.Random(0).sample(built, min(samples, len(built))):
        if time.monotonic() < deadline:
            folder = Path(tempfile.mkdtemp(dir=work))
            environment = {**os.environ, "TORCH_CUDA_ARCH_LIST": farm.toolchain.capability or "9.0"}
            environment["CUDA_HOME"] = str(farm.toolchain.cuda_home or "")
            row["torch"] = torch_seconds(request, folder, environment)
            row["floor_seconds"] = floor_seconds(request, farm.toolchain, folder / "floor")
            print(json.dumps(row), flush=True)
    return {"rows": rows, "glue_seconds": glue_seconds, "core_seconds": core_seconds, "cores": os.cpu_count()}


def _cold(farm: ExtensionFarm, request: ExtensionRequest) -> dict[str, Any]:
    start = time.perf_counter()
    entry = farm.build(request)
    error = entry.record["error"].partition("\n")[0][:160]
    return {"seconds": time.perf_counter() - start, "headers": entry.record["headers"], "error": error}


def _good(out: Path, asked: list[Asked]) -> list[ExtensionRequest]:
    """The extensions that `cold` found to compile."""
    rows = json.loads((out / "cold.json").read_text())["rows"]
    good = {row["program"] for row in rows if row.get("error") == ""}
    return [one.requests[0] for one in asked if one.program in good]


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
            outcome = f"{type(failure).__name__}: {failure}"
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
        if ctypes.CDLL(None).mount(b"tmpfs", str(small).encode(), b"tmpfs", 0, b"size=256k") == 0:
            try:
                crowded = Farm(small, arch)
                (small / "filler").write_bytes(b"x" * (200 << 10))
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


def _table(title: str, rows: list[list[str]]) -> None:
    table = Table("", "", title=title, title_justify="left", box=None, show_header=False)
    table.columns[1].justify = "right"
    for row in rows:
        table.add_row(*row)
    Console(width=130).print(table)
    print()


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def print_tables(out: Path) -> None:
    """Prints what stands in `out`."""
    known = {path.stem: json.loads(path.read_text()) for path in sorted(out.glob("*.json"))}
    if one := known.get("cold"):
        _cold_table(one)
    if one := known.get("hit"):
        found = one["milliseconds"]
        _table("A hit, ms", [["median", f"{median(found):.1f}"], ["longest", f"{max(found):.1f}"]])
    if one := known.get("concurrent"):
        lines = [["seconds for all", f"{one['wall_seconds']:.1f}"], ["median of one", f"{median(one['seconds']):.1f}"]]
        _table(f"{one['builds']} cold builds at once, {one['cores']} cores", lines)
    if one := known.get("edits"):
        lines = [
            ["random edits, right", f"{one['right']} of {one['edits']}"],
            ["identical requests of 8 processes, right", f"{one['identical_right']} of {one['identical']}"],
            ["entries in the cache, distinct requests", f"{one['entries']}, {one['distinct']}"],
        ]
        _table("No wrong artifact", lines)
    if rows := known.get("faults"):
        _table("Faults", [[row["fault"], row["outcome"]] for row in rows])


def _cold_table(known: dict[str, Any]) -> None:
    rows = known["rows"]
    tried = [row for row in rows if "seconds" in row]
    good = [row for row in tried if not row["error"]]
    thin = [row for row in good if row["headers"] == "thin"]
    sampled = [row for row in good if "torch" in row and row["torch"]["compiled"]]
    lines = [
        ["programs, that asked for an extension", f"{len(rows)}, {len([row for row in rows if row['asked']])}"],
        ["built, and compile with any headers", f"{len(tried)}, {len(good)}"],
        ["of these by the thin headers", f"{len(thin) / len(good):.0%}"],
        ["seconds, median", f"{median(row['seconds'] for row in good):.1f}"],
        ["seconds, 95 % below", f"{_percentile([row['seconds'] for row in good], 0.95):.1f}"],
    ]
    failed = [row["seconds"] for row in tried if row["error"]]
    if failed:
        lines.append(["seconds of those that do not compile, median", f"{median(failed):.1f}"])
    if sampled:
        theirs = [row["torch"]["seconds"] for row in sampled]
        ours = [row["seconds"] for row in sampled]
        floors = [row["floor_seconds"] for row in sampled if row["floor_seconds"]]
        lines += [
            ["torch.utils.cpp_extension, programs", f"{len(sampled)}"],
            ["its seconds, median", f"{median(theirs):.1f}"],
            ["its seconds, 95 % below", f"{_percentile(theirs, 0.95):.1f}"],
            ["ours of the same, median", f"{median(ours):.1f}"],
            ["times faster, median", f"{median(a / b for a, b in zip(theirs, ours, strict=True)):.1f}"],
        ]
        if floors:
            lines.append([f"kernels alone ({len(floors)}), median", f"{median(floors):.1f}"])
    each = known["core_seconds"] / len(tried)
    lines.append(["core-seconds a build, builds per core-hour", f"{each:.1f}, {3600 / each:.0f}"])
    lines.append(["the glue, once for an installation", f"{known['glue_seconds']:.1f}"])
    _table(f"Cold builds, one after the other, {known['cores']} cores", lines)


@app.command()
def main(
    sections: Annotated[list[str] | None, typer.Argument(help="Sections to run; all of them unless given.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("benchmarks/results/build"),
    programs: Annotated[Path | None, typer.Option(help="Published programs, in CUDA-L1's JSONL format.")] = None,
    arch: Annotated[str, typer.Option(help="What to compile for.")] = "H200",
    samples: Annotated[int, typer.Option(help="Programs to compile by torch's own way, too.")] = 8,
    count: Annotated[int, typer.Option(help="Random edits.")] = 1000,
    seconds: Annotated[float, typer.Option(help="Time for `cold`; what does not fit is left out.")] = 3600.0,
) -> None:
    """Runs sections and prints the tables of what stands in `--out`."""
    chosen = sections or ["cold", "hit", "concurrent", "edits", "faults"]
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="warpsmith-bench-") as folder:
        work = Path(folder)
        work.chmod(0o755)
        asked = (
            asked_for(programs, arch, work / "asked") if set(chosen) & {"cold", "hit", "concurrent", "faults"} else []
        )
        for section in chosen:
            print(f"== {section}", flush=True)
            if section == "cold":
                found: Any = cold(work, arch, asked, samples, seconds)
            elif section == "hit":
                found = hit(work, arch, _good(out, asked)[:10])
            elif section == "concurrent":
                found = concurrent(work, arch, _good(out, asked)[:_CONCURRENT]) | {"cores": os.cpu_count()}
            elif section == "edits":
                found = edits(work, count, 1)
            elif section == "faults":
                found = faults(work, arch, _good(out, asked)[0])
            else:
                continue
            (out / f"{section}.json").write_text(json.dumps(found))
    print_tables(out)


if __name__ == "__main__":
    app()
