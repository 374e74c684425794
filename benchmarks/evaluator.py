"""How far the evaluator's verdicts can be trusted, how fast they come, and what its defences cost.

    python -m benchmarks.evaluator [noise slowdowns recovery] [--out FOLDER] [--go-on]
    python -m benchmarks.evaluator noise --arch cpu [--busy 1] --out FOLDER
    python -m benchmarks.evaluator build published baselines marked --programs FILE.jsonl

Prints the tables of the figures in `--out` (`table` prints these alone), which its sections write: `noise` (the same
program on both sides), `slowdowns` (a known slow-down), `recovery` (the next verdict after a fault), `build`,
`published` and `baselines` (CUDA-L1's kernels), and `marked` (the tasks of these that cannot tell a good program from a
cheat). The last four need `--programs`. All but `marked`, `table` and `noise --arch cpu` need a GPU. With `--go-on`,
`noise`, `published` and `baselines` continue where an earlier run of the same code stopped; without it they start
again. `--keep-reference` is of `noise` and `published`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import typer

from benchmarks.evaluator_programs import BUNDLED, CYCLES, FAULTS, KERNELS, slowed, spinning
from benchmarks.evaluator_tables import print_tables
from benchmarks.published import (
    LIMITS,
    baseline_jobs,
    load_programs,
    marked_tasks,
    measure,
    measure_baselines,
    program_jobs,
)
from configs.schema import LimitsConfig
from evaluators.compile.ahead import build_all
from evaluators.evaluator import Evaluator
from evaluators.host.open_device import open_device
from evaluators.records import Outcome, Verdict, verdict_table
from orchestration.commands.store import open_to_runners

app = typer.Typer(add_completion=False)
_RUNNER_USERS = range(61000, 62000)
_FACTORS = (1.03, 1.10, 1.50)


def _save(
    out: Path, name: str, verdicts: Iterable[Verdict], about: list[dict[str, Any]], *, more: bool = False
) -> None:
    """Writes verdicts as Parquet, and descriptions of the trials (`about`) as JSON beside them. `more` adds both to the
    files of an earlier run."""
    out.mkdir(parents=True, exist_ok=True)
    # Further lines of a message quote the program, which may be somebody else's.
    table = verdict_table([replace(verdict, message=verdict.message.partition("\n")[0]) for verdict in verdicts])
    verdict_file, about_file = out / f"{name}.parquet", out / f"{name}.json"
    if more and verdict_file.is_file():
        table = pa.concat_tables([pq.read_table(verdict_file, schema=table.schema), table])
        about = json.loads(about_file.read_text()) + about
    pq.write_table(table, verdict_file, compression="zstd")
    about_file.write_text(json.dumps(about))


def _earlier(out: Path, name: str) -> Any:
    """The content of an earlier run's JSON file, or an empty list."""
    path = out / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else []


def noise(
    out: Path, trials: int, deadline: float, arch: str = "auto", busy: int = 0, *, keeps_reference: bool = False
) -> None:
    """Judges the same program on both sides, `trials` times for each kernel, with new processes for each. Saves the
    figures after each trial. `busy`: how many processes keep a core busy meanwhile."""
    first = 1 + max((row["trial"] for row in _earlier(out, "noise")), default=-1)
    with Evaluator(arch) as evaluator, _load(busy):
        evaluator.device.keeps_reference = keeps_reference
        evaluator.start()
        programs = BUNDLED if evaluator.device.arch == "cpu" else KERNELS
        for trial in range(first, trials):
            if time.time() > deadline:
                break
            verdicts, about = [], []
            for kernel in (kernel for kernel in programs if trial % kernel.every == 0):
                verdicts.append(evaluator.evaluate(kernel.task, kernel.candidate(trial)))
                about.append({"kernel": kernel.name, "about": kernel.about, "trial": trial})
            _save(out, "noise", verdicts, about, more=True)


@contextmanager
def _load(processes: int) -> Iterator[None]:
    """Within the block so many processes keep a core busy each."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def slowdowns(out: Path, trials: int, deadline: float) -> None:
    """Judges a program against itself with 3, 10 and 50 % more time, in cycles of the clock rate that was seen."""
    verdicts, about = [], []
    with Evaluator() as evaluator:
        evaluator.start()
        for length in CYCLES:
            kernel = spinning(length)
            timing = evaluator.evaluate(kernel.task, kernel.candidate(0)).timing
            assert timing is not None
            cycles = timing.reference_seconds.value * 1e6 * timing.clocks[-1].sm_mhz
            for trial in range(trials):
                for factor in _FACTORS:
                    if time.time() < deadline:
                        source = slowed(kernel, trial, round((factor - 1) * cycles))
                        verdicts.append(evaluator.evaluate(kernel.task, source))
                        about.append({"about": length, "factor": factor, "trial": trial})
    _save(out, "slowdowns", verdicts, about)


def _kill_runners() -> None:
    for status in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if status.stat().st_uid in _RUNNER_USERS:
                os.kill(int(status.name), signal.SIGKILL)


def recovery(out: Path) -> None:
    """Judges a good program, then a fault, then the good program again: how long that takes, and whether both verdicts
    agree."""
    kernel = KERNELS[3]
    verdicts, about = [], []
    limits = LimitsConfig(start_seconds=10.0, call_seconds=2.0, gpu_memory_gib=8.0)
    with Evaluator(limits=limits) as evaluator:
        evaluator.start()
        for number, (name, (top, statement)) in enumerate(FAULTS.items()):
            before = evaluator.evaluate(kernel.task, kernel.candidate(10 * number))
            if name == "kill -9":
                threading.Timer(0.7, _kill_runners).start()
            fault = evaluator.evaluate(kernel.task, kernel.candidate(10 * number + 1, statement, top=top))
            start = time.perf_counter()
            after = evaluator.evaluate(kernel.task, kernel.candidate(10 * number + 2))
            about.append(
                {
                    "fault": name,
                    "verdict": str(fault.outcome),
                    "message": fault.message[:200],
                    "fault_seconds": fault.cost.get("total"),
                    "recovery_seconds": time.perf_counter() - start,
                    "before": before.speedup,
                    "after": after.speedup,
                    "after_outcome": str(after.outcome),
                }
            )
            verdicts += [before, fault, after]
    _save(out, "recovery", verdicts, about)


def build(out: Path, programs: Path, store: Path, workers: int, seconds: float) -> None:
    """Compiles the published programs, in parallel and while nothing is measured."""
    jobs = program_jobs(load_programs(programs))
    start = time.perf_counter()
    build_all(jobs, open_device().arch, store, LIMITS, workers, seconds)
    done = len(list((store / "artifacts").glob("*.json")))
    entry = {"jobs": len(jobs), "done": done, "seconds": time.perf_counter() - start, "workers": workers}
    out.mkdir(parents=True, exist_ok=True)
    (out / "build.json").write_text(json.dumps(entry))
    print(entry)


def published(out: Path, programs: Path, store: Path, deadline: float, *, keeps_reference: bool = False) -> None:
    """Judges the published programs, and asks for each verdict a second time."""
    usable = load_programs(programs)
    earlier = out / "published.parquet"
    done = set(pq.read_table(earlier, columns=["task"])["task"].to_pylist()) if earlier.is_file() else set()
    with Evaluator(limits=LIMITS, store=store) as evaluator:
        evaluator.device.keeps_reference = keeps_reference
        evaluator.start()
        start = time.perf_counter()
        verdicts = list(measure(evaluator, [program for program in usable if program.task.id not in done], deadline))
        seconds = time.perf_counter() - start
        repeats = []
        sources = {program.task.id: program for program in usable}
        for verdict in verdicts:
            program = sources[verdict.task]
            again = time.perf_counter()
            evaluator.evaluate(program.task, program.candidate.source)
            repeats.append(time.perf_counter() - again)
    about = [{"seconds": seconds, "repeats": repeats, "usable": len(usable)}]
    _save(out, "published", verdicts, about, more=True)
    marked(out, programs)


def marked(out: Path, programs: Path) -> None:
    """Lists the tasks evaluated so far that cannot tell a good program from a cheat. Needs no GPU."""
    rows = pq.read_table(out / "published.parquet", columns=["task", "evaluator"]).to_pylist()
    evaluated = {(row["task"], dict(row["evaluator"])["task_digest"]) for row in rows}
    (out / "marked.json").write_text(json.dumps(marked_tasks(load_programs(programs), evaluated)))


def baselines(out: Path, programs: Path, store: Path, workers: int, seconds: float) -> None:
    """Measures the other four baselines' speed-ups over eager, for tasks whose published program is correct. The
    compilers get at most two fifths of the time."""
    deadline = time.time() + seconds
    rows = pq.read_table(out / "published.parquet").to_pylist()
    right = {row["task"] for row in rows if row["outcome"] == Outcome.OK}
    tasks = [program.task for program in load_programs(programs) if program.task.id in right]
    build_all(baseline_jobs(tasks), open_device().arch, store, LIMITS, workers, 0.4 * seconds)
    with Evaluator(limits=LIMITS, store=store) as evaluator:
        evaluator.start()
        for speedups in measure_baselines(evaluator, tasks, deadline, dict(_earlier(out, "baselines"))):
            (out / "baselines.json").write_text(json.dumps(speedups))


@app.command()
def main(
    sections: Annotated[list[str] | None, typer.Argument(help="Sections; else all that need no files.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("benchmarks/results/evaluator"),
    trials: Annotated[int, typer.Option(help="Trials of each kernel.")] = 100,
    seconds: Annotated[float, typer.Option(help="Time for each section; what does not fit is left out.")] = 3600.0,
    programs: Annotated[Path | None, typer.Option(help="Published programs, in CUDA-L1's JSONL format.")] = None,
    go_on: Annotated[bool, typer.Option(help="Add to the figures in --out, which must be of the same code.")] = False,
    store: Annotated[Path, typer.Option(help="Folder of artifacts and baselines.")] = Path("/tmp/warpsmith-store"),
    workers: Annotated[int, typer.Option(help="Builds at a time.")] = max(1, (os.cpu_count() or 2) - 2),
    arch: Annotated[str, typer.Option(help="Of `noise`: cpu, or auto for the GPU.")] = "auto",
    busy: Annotated[int, typer.Option(help="Of `noise`: processes that keep a core busy meanwhile.")] = 0,
    keep_reference: Annotated[
        bool, typer.Option("--keep-reference", help="The reference's process serves several verdicts.")
    ] = False,
) -> None:
    """Runs sections and prints the tables of the figures in `--out`."""
    chosen = sections or ["noise", "slowdowns", "recovery"]
    without_gpu = {"table", "marked"} | ({"noise"} if arch == "cpu" else set())
    if set(chosen) - without_gpu and not torch.cuda.is_available():
        raise typer.BadParameter("this machine has no GPU")
    with open_to_runners():
        store.mkdir(parents=True, exist_ok=True)
    for section in chosen:
        deadline = time.time() + seconds
        if section in ("build", "published", "marked", "baselines") and programs is None:
            raise typer.BadParameter(f"{section} needs --programs")
        if section != "table" and not go_on:
            for kind in ("json", "parquet"):
                (out / f"{section}.{kind}").unlink(missing_ok=True)
        if section == "noise":
            noise(out, trials, deadline, arch, busy, keeps_reference=keep_reference)
        elif section == "slowdowns":
            slowdowns(out, max(1, trials // 6), deadline)
        elif section == "recovery":
            recovery(out)
        elif section == "build" and programs:
            build(out, programs, store, workers, seconds)
        elif section == "published" and programs:
            published(out, programs, store, deadline, keeps_reference=keep_reference)
        elif section == "marked" and programs:
            marked(out, programs)
        elif section == "baselines" and programs:
            baselines(out, programs, store, workers, seconds)
        elif section != "table":
            raise typer.BadParameter(f"no section {section}")
    print_tables(out)


if __name__ == "__main__":
    app()
