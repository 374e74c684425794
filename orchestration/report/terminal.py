"""A report as tables in the terminal. It is complete without colour, and 120 columns wide if it is piped."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from orchestration.report import format as fmt
from orchestration.report.assemble import Group, Report, Stage
from orchestration.report.fast_p_tables import compared_fast_p, fast_p_tables
from orchestration.report.paper_tables import (
    SectionedTable,
    compared_tables,
    differences_table,
    gains_table,
)
from orchestration.report.side_by_side import SideBySide
from orchestration.report.sparks import sparks_of
from orchestration.report.statistics import TaskSummary
from orchestration.report.tables import (
    INTERVALS,
    Cell,
    Row,
    further_tables,
    intervals_note,
    stage_tables,
)
from orchestration.report.tables import Table as Described

WIDTH = 120
TASK_WIDTH = 30
CELL_WIDTH = 19
KEY_WIDTH = 40
SECTIONS_WIDTH = 96
SPARK_ROOM = 36
MEASURED = "Rows below the stages of a run are constant policies, with one program a task."


def print_report(report: Report, console: Console) -> None:
    """Prints stages and tasks, 120 columns wide if the console is no terminal."""
    if not console.is_terminal:
        console = Console(file=console.file, width=WIDTH, no_color=True)
    console.print(f"[bold]{report.name}[/bold]  {report.status}  ({report.place})", highlight=False, soft_wrap=True)
    if not report.stages:
        for table in further_tables(report):
            print_table(table, console)
        if not report.teachers:
            console.print("No stage has been assessed yet.")
        return
    for group in report.groups:
        _print_title(group, console)
        for table in (*stage_tables(group), *fast_p_tables(group, short=True)):
            print_table(table, console, has_note=group is report.groups[0])
    for table in further_tables(report):
        print_table(table, console)
    console.print(f"\n{report.measurement}. {intervals_note(report.groups[0])}", style="dim", highlight=False)
    for group in report.groups:
        _print_title(group, console)
        console.print("", _task_table(group.stages, console.width), sep="\n")
    _print_marked(report, console)
    if report.tutoring:
        console.print(f"\n{report.tutoring}", highlight=False)
    if findings := sum((Counter(counts) for counts in report.findings.values()), Counter[str]()):
        kinds = ", ".join(f"{kind} {count}" for kind, count in findings.most_common())
        console.print(f"\nRollouts of training with findings of the guard: {kinds}.", highlight=False)


def print_comparison(compared: SideBySide, console: Console) -> None:
    """Prints several runs side by side, 120 columns wide if the console is no terminal."""
    if not console.is_terminal:
        console = Console(file=console.file, width=WIDTH, no_color=True)
    for name, report in zip(compared.names, compared.reports, strict=True):
        line = f"[bold]{escape(name)}[/bold]  {report.status}  ({escape(report.place)})"
        console.print(line, highlight=False, soft_wrap=True)
    _print_differences(compared, console)
    for group in compared.groups:
        if group.title:
            console.print(f"\n[bold]{group.title}[/bold]", highlight=False)
        for table in (*compared_tables(compared, group), *compared_fast_p(compared, group, short=True)):
            _print_sections(table, console, has_note=group is compared.groups[0])
        if gains := gains_table(group):
            print_table(gains, console)
    _print_sparks(compared, console)
    console.print(f"\n{INTERVALS} {MEASURED}", style="dim", highlight=False)
    for name, report in zip(compared.names, compared.reports, strict=True):
        console.print(f"{escape(name)}: {report.measurement}.", style="dim", highlight=False)


def _print_sparks(compared: SideBySide, console: Console) -> None:
    names = max(map(len, compared.names))
    made = sparks_of(compared.reports, max(console.width - names - SPARK_ROOM, 10))
    if not made:
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in ("figure", "run", "first", "steps", "last"):
        table.add_column(column, no_wrap=True)
    for index, spark in enumerate(made):
        is_new = index == 0 or made[index - 1].figure != spark.figure
        table.add_row(spark.figure if is_new else "", Text(spark.run), spark.first, spark.blocks, spark.last)
    note = "Rollouts by training step, on one scale for all runs. First and last: means of a quarter of the steps."
    _print_titled("Training", table, note, console)


def _print_differences(compared: SideBySide, console: Console) -> None:
    room = (console.width - KEY_WIDTH) // len(compared.names) - 1
    described = differences_table(compared, max(room, 8))
    if described is None:
        console.print("\nThe runs have the same configuration.", highlight=False)
        return
    table = _begin_table(described.first, [escape(column) for column in described.columns])
    for key, cells in described.rows:
        table.add_row(key, *(Text(cell.value) for cell in cells))
    _print_titled(described.title, table, described.note, console)


def _print_sections(described: SectionedTable, console: Console, *, has_note: bool) -> None:
    # A narrow terminal has no room for the number of tasks.
    first = 0 if console.width >= SECTIONS_WIDTH else 1
    table = _begin_table(described.first, described.columns[first:])
    for name, rows, others in described.sections:
        table.add_section()
        table.add_row(Text(name, style="bold underline"))
        _add_rows(table, [(f"  {label}", cells[first:]) for label, cells in (*rows, *others)], [])
    _print_titled(described.title, table, described.note if has_note else "", console)


def _print_title(group: Group, console: Console) -> None:
    if group.title:
        console.print(f"\n[bold]{group.title}[/bold]", highlight=False)


def _print_marked(report: Report, console: Console) -> None:
    """The marked tasks, which no figure above includes, with their own figures if the run kept them."""
    if not report.marks:
        return
    kept = report.config.tasks.marked == "keep"
    done = "kept, but no figure above includes them" if kept else "left out"
    console.print(f"\nTasks that cannot tell a good program from a cheat ({done}):", highlight=False)
    if any(stage.marked for stage in report.stages):
        console.print("", _task_table(report.stages, console.width, marked=True), "", sep="\n")
    for name, mark in sorted(report.marks.items()):
        line = f"{name}  {' '.join(mark.kinds)}: {mark.why}"
        console.print(textwrap.fill(line, console.width, subsequent_indent="    "), markup=False, highlight=False)


def print_table(described: Described, console: Console, *, has_note: bool = True) -> None:
    """A table with its title above and, if wanted, its note below. A cell's interval stands in a line of its own."""
    table = _begin_table(described.first, described.columns)
    _add_rows(table, described.rows, described.others)
    _print_titled(described.title, table, described.note if has_note else "", console)


def _begin_table(first: str, columns: Sequence[str]) -> Table:
    # Without padding, one blank separates the columns.
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _add_rows(table: Table, rows: Sequence[Row], others: Sequence[Row]) -> None:
    for index, (name, cells) in enumerate([*rows, *others]):
        if others and index == len(rows):
            table.add_section()
        table.add_row(name, *map(_cell, cells))


def _print_titled(title: str, table: Table, note: str, console: Console) -> None:
    console.print(f"\n[bold]{title}[/bold]", table, sep="\n", highlight=False)
    if note:
        console.print(note, style="dim", highlight=False)


def _cell(cell: Cell) -> Text:
    return Text.assemble((cell.value, "bold"), *(("\n", (cell.below, "dim")) if cell.below else ()))


def _task_table(stages: Sequence[Stage], width: int, *, marked: bool = False) -> Table:
    """Per task and stage: correct samples of all samples, and mean and best speed-up over eager.

    Covers only the marked tasks, or all others. If the stages do not all fit, the first and the last ones are shown.
    """
    room = max(1, (width - TASK_WIDTH) // (CELL_WIDTH + 2))
    shown = list(stages) if len(stages) <= room else [*stages[:1], *stages[len(stages) - room + 1 :]][:room]
    left_out = len(stages) - len(shown)
    caption = f"{left_out} more stages in the HTML report" if left_out else None
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False, show_edge=False, caption=caption
    )
    table.add_column("task", max_width=TASK_WIDTH, overflow="ellipsis", no_wrap=True)
    for stage in shown:
        table.add_column(f"{stage.label}\nok   mean   best", justify="right", no_wrap=True, min_width=CELL_WIDTH)
    by_stage = [{task.task_id: task for task in (stage.marked if marked else stage.tasks)} for stage in shown]
    names = sorted({name for tasks in by_stage for name in tasks})
    for name in names:
        table.add_row(name, *(_task_cell(tasks.get(name)) for tasks in by_stage))
    return table


def _task_cell(task: TaskSummary | None) -> str:
    if task is None:
        return fmt.NOTHING
    return f"{f'{task.correct}/{task.samples}':>5} {fmt.speed(task.mean):>6} {fmt.speed(task.best):>6}"
