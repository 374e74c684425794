"""Prints programs with our verdicts beside KernelBench's results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from orchestration.kernelbench.judge import THEIRS, agreement
from orchestration.kernelbench.rows import Judged
from orchestration.report import format as fmt
from orchestration.report.leaderboard_page import evidence_of

_WIDTH = 160
_NAMED = 8


def progress(rows: Iterator[Judged], total: int) -> Iterator[Judged]:
    """The same rows, with a bar on standard error as they come."""
    yield from track(rows, "judging", total=total, console=Console(stderr=True), transient=True)


def print_judged(rows: Sequence[Judged], made: Mapping[str, Any]) -> None:
    """A row for each program, how the two judgements agree, and `fast_p` over eager. `made`: the rows' summary."""
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH, no_color=True)
    table = Table("task", "sample", "verdict", "over eager", "interval", "KernelBench", "evidence", box=None)
    for row in rows:
        verdict, eager = row.verdict, row.verdict.estimate_over("eager")
        style = "bold red" if agreement(row) == THEIRS else ""
        table.add_row(
            verdict.task,
            str(row.sample),
            Text(str(verdict.outcome), style=style),
            fmt.speed(fmt.value_of(eager)),
            fmt.speed_interval(eager),
            row.theirs.words if row.theirs else fmt.NOTHING,
            Text(evidence_of(verdict), style="dim"),
        )
    console.print(table)
    for level, by_p in made["fast_p"].get("eager", {}).items():
        shares = ", ".join(f"{p}: {fmt.share(each['value'])}" for p, each in by_p.items())
        tasks = next(iter(by_p.values()))["n"]
        console.print(f"fast_p over eager, {level}, {tasks} tasks: {shares}", highlight=False, soft_wrap=True)
    if made["without_program"]:
        print(f"{made['without_program']} tasks have no program and count as failed in fast_p")
    if missing := made["without_task"]:
        more = ", ..." if len(missing) > _NAMED else ""
        print(f"not judged, since --tasks does not have them: {', '.join(missing[:_NAMED])}{more}")
    counts = ", ".join(f"{count} {name}" for name, count in sorted(made["agreement"].items()))
    print(f"{len(rows)} programs: {counts}")
