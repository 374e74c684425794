"""Runs the gauntlet and shows its results. On a host with several measuring slots several programs run at a time."""

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
    """A task's own reference got no speed-up as a candidate, so that exploits cannot be compared with it."""


def run(
    programs: Sequence[GauntletProgram], arch: str, store: Path, workers: int, *, guarded: bool = True
) -> Iterator[Result]:
    """Yields the programs' results as they come. If not `guarded`, the evaluator works without the guard. Raises
    BaselineError."""
    tasks = sorted({program.task for program in programs if program.is_exploit})
    context = multiprocessing.get_context("spawn")
    with (
        _building(programs, arch, store),
        ProcessPoolExecutor(workers, context, _open, (arch, str(store), guarded)) as pool,
    ):
        baselines = dict(zip(tasks, pool.map(_baseline, tasks), strict=True))
        in_turn = sorted(programs, key=lambda program: needs_build(program.source))
        jobs = {pool.submit(_judge, program.task, program.source): program for program in in_turn}
        attempts: dict[str, list[Result]] = defaultdict(list)
        while jobs:
            for job in wait(jobs, return_when=FIRST_COMPLETED).done:
                program = jobs.pop(job)
                results = attempts[program.id]
                results.append(classify(program, job.result(), baselines.get(program.task, Estimate(1.0, 1.0, 1.0, 0))))
                if len(results) == 1 and program.is_exploit and not results[0].passes:
                    # An exploit that seems to gain is judged again, as jumping rewards are, and the majority decides.
                    for attempt in range(1, _ATTEMPTS):
                        jobs[pool.submit(_judge, program.task, f"{program.source}\nattempt = {attempt}\n")] = program
                elif len(results) in (1, _ATTEMPTS):
                    yield _majority(results)


@contextlib.contextmanager
def _building(programs: Sequence[GauntletProgram], arch: str, store: Path) -> Iterator[None]:
    """Within the block, builders on the host's other cores compile what the programs ask for, so that a GPU seldom
    waits for it. If these cores are measured themselves, or if the compute capability of `arch` is not known, the
    evaluators compile instead."""
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
    """Builds what a program asks for into the store's cache."""
    _builder.build(find_task(name, profile_of(_builder.arch)), Candidate.propose(name, source, "gauntlet"))


def _majority(results: Sequence[Result]) -> Result:
    passes = 2 * sum(result.passes for result in results) > len(results)
    return next(result for result in results if result.passes == passes)


def run_all(
    programs: Sequence[GauntletProgram], arch: str, store: Path, workers: int, *, guarded: bool = True
) -> list[Result]:
    """All results; shows a bar on standard error until they are there. Raises BaselineError."""
    results = run(programs, arch, store, workers, guarded=guarded)
    return list(track(results, "gauntlet", len(programs), transient=True, console=Console(stderr=True)))


def workers_of(arch: str) -> int:
    """How many programs are judged at a time: one on a GPU; on a CPU one on each core, which is a measuring slot."""
    return len(os.sched_getaffinity(0)) if arch == "cpu" else 1


def _open(arch: str, store: str, guarded: bool) -> None:
    """Opens the evaluator of a worker process, which lives as long as the process."""
    global _evaluator
    os.umask(0o022)  # runners are other users, and read the store
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
    """Whether at least a share `min_caught` of the exploits is caught, and at most `max_refused` honest programs are
    refused."""
    exploits = [result.passes for result in results if result.program.is_exploit]
    refused = sum(not result.passes for result in results if not result.program.is_exploit)
    return sum(exploits) >= min_caught * len(exploits) and refused <= max_refused


def print_results(results: Sequence[Result], console: Console) -> None:
    """Prints the tables by family, then every program that did not pass."""
    for is_exploit, title in ((True, "exploits"), (False, "honest programs")):
        own = [result for result in results if result.program.is_exploit == is_exploit]
        if own:
            console.print(_table(title, by_family(own)))
            passed, word = sum(result.passes for result in own), "caught" if is_exploit else "cleared"
            console.print(f"{passed} of {len(own)} {title} {word} ({passed / len(own):.1%})\n")
    total = sum(result.seconds for result in results)
    console.print(
        f"the guard took {sum(result.guard_seconds for result in results) / max(total, 1e-9):.1%} of {total:.0f} s"
    )
    for result in sorted(results, key=lambda result: result.program.id):
        if not result.passes:
            speedup = result.verdict.speedups.get("eager")
            figure = f" {speedup.value:.2f}x [{speedup.low:.2f}, {speedup.high:.2f}]" if speedup else ""
            message = result.verdict.message or "; ".join(finding.message for finding in result.verdict.guard)
            word = "missed" if result.program.is_exploit else "refused"
            console.print(f"{word} {result.program.id}: {result.how}{figure} {message}")


def _table(title: str, families: Sequence[Family]) -> Table:
    passed = "caught" if families[0].is_exploit else "cleared"
    table = Table(title, "programs", passed, "how", "s each", "guard", box=None)
    for family in families:
        how = ", ".join(f"{reason} {count}" for reason, count in family.how)
        share = f"{family.guard_seconds / family.seconds:.1%}" if family.seconds else ""
        table.add_row(family.name, str(family.programs), str(family.passed), how, f"{family.seconds:.1f}", share)
    return table
