"""The audit of CUDA-L1's tasks, and whether the list of marked tasks that ships says the same.

The audits are what `warpsmith audit FILE.jsonl --output benchmarks/results/audit/kernelbench.parquet` wrote, of a file
in CUDA-L1's JSONL format, which is not part of this project.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from evaluators.audit.marks import Mark, marks_of, shipped_marks
from evaluators.audit.records import TaskAudit
from evaluators.audit.run import read_audits, summarise_audits

AUDITS = Path("benchmarks/results/audit/kernelbench.parquet")


def differences(audits: Sequence[TaskAudit], marks: Sequence[Mark]) -> list[str]:
    """What the audits found and the list does not say, or the reverse, in a line for each task."""
    found = {one.digest: (one.task, one.kinds) for one in marks_of(audits)}
    listed = {one.digest: (one.task, one.kinds) for one in marks}
    return [
        f"digest {digest}: the audit has {found.get(digest)}, the list {listed.get(digest)}"
        for digest in sorted(found.keys() | listed.keys())
        if found.get(digest) != listed.get(digest)
    ]


def main(audits: Annotated[Path, typer.Argument(help="What the audit wrote.")] = AUDITS) -> None:
    """Prints what was found, the sentence of the list beside it. Exit code 1 where the two differ."""
    if not audits.is_file():
        raise typer.BadParameter(f"there is no {audits}; `warpsmith audit FILE.jsonl --output {audits}` writes it")
    found = read_audits(audits)
    why = {mark.digest: mark.why for mark in shipped_marks()}
    table = Table("task", "kinds", "why", "s", box=None)
    for one in found:
        if one.findings:
            table.add_row(one.task, " ".join(one.kinds), why.get(one.digest, ""), f"{one.seconds:.1f}")
    console = Console(width=160)
    console.print(table)
    for one in found:
        if one.failure:
            console.print(f"not audited: {one.task}: {one.failure}", markup=False)
    seconds = sorted(one.seconds for one in found)
    print(f"{summarise_audits(found)}; {sum(seconds):.0f} s, {median(seconds):.1f} s a task in the median")
    for line in (different := differences(found, shipped_marks())):
        print(line)
    raise typer.Exit(1 if different else 0)


if __name__ == "__main__":
    typer.run(main)
