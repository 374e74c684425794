"""`warpsmith tasks`: lists tasks."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestration.commands.refusal import refuse


def tasks(
    path: Annotated[
        str,
        typer.Argument(
            help="`bundled`, a KernelBench folder or a JSONL file, or several of these, separated by commas."
        ),
    ] = "bundled",
) -> None:
    """List tasks, and mark those that cannot tell a good program from a cheat. The last line is their number."""
    from rich.console import Console
    from rich.table import Table

    from evaluators.audit.marks import marked_among, shipped_marks
    from evaluators.tasks import TaskError, load_tasks
    from evaluators.tasks.loader import load_variants

    try:
        listed = load_tasks(path)
    except TaskError as error:
        raise refuse(error) from None
    marks = marked_among(listed, shipped_marks())
    table = Table("id", "level", "name", "tags", "variants", *(["cannot tell"] if marks else []), box=None)
    for task in listed:
        variants = len(load_variants(task.id))
        kinds = [" ".join(marks[task.id].kinds) if task.id in marks else ""] if marks else []
        table.add_row(task.id, str(task.level), task.name, " ".join(task.tags), str(variants or ""), *kinds)
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table)
    print(f"{len(listed)} tasks")
