"""`warpsmith tasks`: lists tasks, and generates new ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands.refusal import refuse


def tasks(
    path: Annotated[
        str,
        typer.Argument(
            help="`bundled`, a KernelBench folder, a .parquet or .jsonl file, hf://datasets/OWNER/NAME, or several."
        ),
    ] = "bundled",
    generate: Annotated[int, typer.Option(min=0, help="Generate so many tasks in place of listing some.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the tasks to generate: the same seed gives the same file.")] = 0,
    output: Annotated[Path | None, typer.Option(help="The file for the generated tasks (JSON Lines).")] = None,
    keep_out: Annotated[
        list[str] | None,
        typer.Option(help="Tasks whose structure no generated task may have, beside the bundled ones. Repeatable."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes that generate; 0 takes one a core.")] = 0,
    first_number: Annotated[
        int | None,
        typer.Option(min=1, help="Of each level's generated tasks, 10001 unless given: a second list needs its own."),
    ] = None,
) -> None:
    """List tasks, and mark those that cannot tell a good program from a cheat. The last line is their number.

    With --generate, write new tasks to --output."""
    if not generate:
        if output or keep_out:
            raise refuse(ValueError("--output and --keep-out belong to --generate"))
        _list(path)
        return
    if output is None:
        raise refuse(ValueError("--generate needs --output FILE"))
    from orchestration.commands.generate import generate_tasks

    generate_tasks(generate, seed, output, keep_out or [], jobs or os.cpu_count() or 1, first_number)


def _list(path: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from evaluators.audit.marks import marked_among, shipped_marks
    from evaluators.tasks import load_tasks
    from evaluators.tasks.loader import TaskVariants

    listed, variants = load_tasks(path), TaskVariants(path)
    marks = marked_among(listed, shipped_marks())
    table = Table("id", "level", "name", "tags", "variants", *(["cannot tell"] if marks else []), box=None)
    for task in listed:
        number = len(variants.of(task.id))
        kinds = [" ".join(marks[task.id].kinds) if task.id in marks else ""] if marks else []
        table.add_row(task.id, str(task.level), task.name, " ".join(task.tags), str(number or ""), *kinds)
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table)
    print(f"{len(listed)} tasks")
