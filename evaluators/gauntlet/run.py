"""Runs the gauntlet, several programs at a time where the host has several measuring slots, and shows the results."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from configs.schema import LimitsConfig
from evaluators.compile.builder import CAPABILITIES, Builder
from evaluators.compile.hints import needs_build
from evaluators.evaluator import Evaluator
from evaluators.gauntlet import Family, GauntletProgram, Result, by_family, classify
from evaluators.records import Candidate, Estimate, Outcome, Verdict
from evaluators.tasks import find_task, profile_of, program_source

LIMITS = LimitsConfig(start_seconds=20.0, call_seconds=5.0)
_ATTEMPTS = 3
_AS_CANDIDATE = "\n\nclass ModelNew(Model):\n    pass\n"
_evaluator: Evaluator
_builder: Builder


class BaselineError(Exception):
    """A task's own reference got no speed-up, so that nothing can be compared with it."""


def run(
    programs: Sequence[GauntletProgram], arch: str, store: Path, workers: int, *, guarded: bool = True
) -> Iterator[Result]:
    """The programs' results as they come. Without `guarded` programs are believed. Raises BaselineError."""
    tasks = sorted({program.task for program in programs if program.is_exploit})
    context = multiprocessing.get_context("spawn")
    with (
        _building(programs, arch, store),
        ProcessPoolExecutor(workers, context, _open, (arch, str(store), guarded)) as pool,
    ):
        baselines = dict(zip(tasks, pool.map(_baseline, tasks), strict=True))
        in_turn = sorted(programs, key=lambda program: needs_build(program.source))
        jobs = {pool.submit(_judge, program.task, program.source): program for program in in_turn}
        found: dict[str, list[Result]] = defaultdict(list)
        while jobs:
            for job in wait(jobs, return_when=FIRST_COMPLETED).done:
                program = jobs.pop(job)
                results = found[program.id]
                results.append(classify(program, job.result(), baselines.get(program.task, Estimate(1.0, 1.0, 1.0, 0))))
                if len(results) == 1 and program.is_exploit and not results[0].passes:
                    # As rewards that jump are: one that seems to gain is judged again, and the majority decides.
                    for attempt in range(1, _ATTEMPTS):
                        jobs[pool.submit(_judge, program.task, f"{program.source}\nattempt = {attempt}\n")] = program
                elif len(results) in (1, _ATTEMPTS):
                    yield _majority(results)


@contextlib.contextmanager
def _building(programs: Sequence[GauntletProgram], arch: str, store: Path) -> Iterator[None]:
    """Compiles what the programs ask for on the host's other cores meanwhile, so that a GPU seldom waits for it. Where
    the measuring is done on these very cores, or what to compile for is not known, the evaluators do it themselves."""
    if arch not in CAPABILITIES:
        yield
        return
    context = multiprocessing.get_context("spawn")
    builders = max(len(os.sched_getaffinity(0)) - 2, 1)
    with ProcessPoolExecutor(builders, context, _open_builder, (arch, str(store))) as pool:
        for program in programs:
            if needs_build(program.source):
                pool.submit(_build, program.task, program.source)
        try:
            yield
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _open_builder(arch: str, store: str) -> None:
    global _builder
    os.umask(0o022)
    _builder = Builder(arch, Path(store), LIMITS)


def _build(name: str, source: str) -> None:
    """Leaves what a program asks for in the store's cache."""
    _builder.build(find_task(name, profile_of(_builder.arch)), Candidate.propose(name, source, "gauntlet"))


def _majority(results: Sequence[Result]) -> Result:
    passes = 2 * sum(one.passes for one in results) > len(results)
    return next(one for one in results if one.passes == passes)


def run_all(
    programs: Sequence[GauntletProgram], arch: str, store: Path, workers: int, *, guarded: bool = True
) -> list[Result]:
    """All results, with a bar on standard error meanwhile. Raises BaselineError."""
    found = run(programs, arch, store, workers, guarded=guarded)
    return list(track(found, "gauntlet", len(programs), transient=True, console=Console(stderr=True)))


def workers_of(arch: str) -> int:
    """One a GPU; on a CPU one a core, of which each has a measuring slot."""
    return len(os.sched_getaffinity(0)) if arch == "cpu" else 1


def _open(arch: str, store: str, guarded: bool) -> None:
    """Opens this worker's evaluator, which its process ends."""
    global _evaluator
    os.umask(0o022)  # runners are other users
    _evaluator = Evaluator(arch, limits=LIMITS, store=Path(store), guarded=guarded)


def _baseline(name: str) -> Estimate:
    task = find_task(name, profile_of(_evaluator.device.arch))
    verdict = _evaluator.evaluate(task, program_source(task) + _AS_CANDIDATE, author="reference")
    if verdict.outcome is not Outcome.OK:
        raise BaselineError(f"{name}: the reference as a candidate is {verdict.outcome}: {verdict.message}")
    return verdict.speedups["eager"]


def _judge(task: str, source: str) -> Verdict:
    return _evaluator.evaluate(task, source, author="gauntlet")


def suffices(results: Sequence[Result], min_caught: float, max_refused: int) -> bool:
    """Whether a share of the exploits is caught, and not too many honest programs are refused."""
    exploits = [one.passes for one in results if one.program.is_exploit]
    refused = sum(not one.passes for one in results if not one.program.is_exploit)
    return sum(exploits) >= min_caught * len(exploits) and refused <= max_refused


def print_results(results: Sequence[Result], console: Console) -> None:
    """The tables by family, then every program that did not pass."""
    for is_exploit, title in ((True, "exploits"), (False, "honest programs")):
        own = [one for one in results if one.program.is_exploit == is_exploit]
        if own:
            console.print(_table(title, by_family(own)))
            passed, word = sum(one.passes for one in own), "caught" if is_exploit else "cleared"
            console.print(f"{passed} of {len(own)} {title} {word} ({passed / len(own):.1%})\n")
    total = sum(one.seconds for one in results)
    console.print(f"the guard took {sum(one.guard_seconds for one in results) / max(total, 1e-9):.1%} of {total:.0f} s")
    for one in sorted(results, key=lambda one: one.program.id):
        if not one.passes:
            speedup = one.verdict.speedups.get("eager")
            figure = f" {speedup.value:.2f}x [{speedup.low:.2f}, {speedup.high:.2f}]" if speedup else ""
            said = one.verdict.message or "; ".join(found.message for found in one.verdict.guard)
            word = "missed" if one.program.is_exploit else "refused"
            console.print(f"{word} {one.program.id}: {one.how}{figure} {said}")


def _table(title: str, families: Sequence[Family]) -> Table:
    passed = "caught" if families[0].is_exploit else "cleared"
    table = Table(title, "programs", passed, "how", "s each", "guard", box=None)
    for one in families:
        how = ", ".join(f"{reason} {count}" for reason, count in one.how)
        share = f"{one.guard_seconds / one.seconds:.1%}" if one.seconds else ""
        table.add_row(one.name, str(one.programs), str(one.passed), how, f"{one.seconds:.1f}", share)
    return table
