"""Whether every variant of every bundled task does what its header claims.

    python -m benchmarks.tasks [--levels 1,2,3] [--preset thorough]

Evaluates the variants on this machine's CPU and prints each one's outcome and speed-up beside the label in its header.
It must never decide a label itself. Needs a C++ compiler and no GPU.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.table import Table

from evaluators.evaluator import Evaluator
from evaluators.records import Outcome, Task, Verdict, verdict_table
from evaluators.reward import FASTER
from evaluators.tasks import load_tasks
from evaluators.tasks.loader import Variant, load_variants

SAME = 1.15  # equal programs stay within this factor on other machines, caches and versions


@dataclass(frozen=True)
class Result:
    """One variant with its verdict."""

    task: Task
    variant: Variant
    verdict: Verdict

    @property
    def is_right(self) -> bool:
        """Whether the program is wrong exactly if its header says so."""
        expected = Outcome.WRONG if self.variant.expect == "wrong" else Outcome.OK
        return self.verdict.outcome is expected

    @property
    def is_as_expected(self) -> bool:
        """Whether the program is right, and its speed-up on the side of 1 that its header names."""
        estimate = self.verdict.speedups.get("eager")
        if not self.is_right or estimate is None:
            return self.is_right
        if self.variant.expect == "faster":
            return estimate.value > FASTER
        if self.variant.expect == "slower":
            return estimate.value < 1 / FASTER
        return 1 / SAME < estimate.value < SAME


def evaluate_all(levels: set[int], preset: str, console: Console) -> list[Result]:
    """Evaluates every variant of the bundled tasks of these levels, in order."""
    results = []
    tasks = [task for task in load_tasks("bundled", "cpu") if task.level in levels]
    with Evaluator(arch="cpu", preset=preset) as evaluator:
        for task in tasks:
            with console.status(task.id):
                for variant in load_variants(task.id):
                    verdict = evaluator.evaluate(task, variant.source, author=f"variant:{variant.name}")
                    results.append(Result(task, variant, verdict))
    return results


def table_of(results: list[Result]) -> Table:
    """A table with a row for each variant. Rows that are not as expected are coloured."""
    table = Table("task", "reference ms", "variant", "expected", "outcome", "speed-up", "95 % interval")
    for index, column in enumerate(table.columns):
        column.no_wrap = True
        column.justify = "right" if index in (1, 5, 6) else "left"
    for result in results:
        verdict = result.verdict
        estimate = verdict.speedups.get("eager")
        table.add_row(
            result.task.id,
            f"{1e3 * verdict.timing.reference_seconds.value:.2f}" if verdict.timing else "",
            result.variant.name,
            result.variant.expect,
            str(verdict.outcome),
            f"{estimate.value:.2f}" if estimate else "",
            f"{estimate.low:.2f} to {estimate.high:.2f}" if estimate else "",
            style=None if result.is_as_expected else ("yellow" if result.is_right else "bold red"),
        )
    return table


def main(
    levels: Annotated[str, typer.Option(help="Levels to evaluate, separated by commas.")] = "1,2,3",
    preset: Annotated[str, typer.Option(help="How thoroughly to measure: fast or thorough.")] = "fast",
    out: Annotated[Path | None, typer.Option(help="Parquet file for the verdicts.")] = None,
) -> None:
    """Evaluates the variants of the bundled tasks. Exit code 1 if any outcome is not the expected one."""
    console = Console() if Console().is_terminal else Console(width=140)
    start = time.perf_counter()
    try:
        wanted = {int(level) for level in levels.split(",")}
        results = evaluate_all(wanted, preset, console)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    console.print(table_of(results))
    for result in results:
        if not result.is_right:
            verdict = result.verdict
            console.print(f"{verdict.task} {result.variant.name}: {verdict.outcome}: {verdict.message}", markup=False)
    if out is not None:
        pq.write_table(verdict_table([result.verdict for result in results]), out)
    tasks = len({result.task.id for result in results})
    expected = sum(result.is_as_expected for result in results)
    seconds = time.perf_counter() - start
    console.print(f"{tasks} tasks, {len(results)} variants, {expected} as expected, {seconds:.0f} seconds")
    if not all(result.is_right for result in results):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
