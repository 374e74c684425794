"""Whether the shipped list of marked tasks agrees with the audit of CUDA-L1's tasks.

    python -m benchmarks.audit

Prints the findings of the stored audits with the list's sentences beside them, then every difference. Runs nothing, on
any machine. `warpsmith audit FILE.jsonl --output benchmarks/results/audit/kernelbench.parquet` wrote the audits; its
input is a file in CUDA-L1's JSONL format, which is not part of this project.
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
    """A line for each task on which the audits and the list disagree."""
    audited = {mark.digest: (mark.task, mark.kinds) for mark in marks_of(audits)}
    listed = {mark.digest: (mark.task, mark.kinds) for mark in marks}
    return [
        f"digest {digest}: the audit has {audited.get(digest)}, the list {listed.get(digest)}"
        for digest in sorted(audited.keys() | listed.keys())
        if audited.get(digest) != listed.get(digest)
    ]


def main(audits: Annotated[Path, typer.Argument(help="File that the audit wrote.")] = AUDITS) -> None:
    """Prints the findings, with the list's sentences. Exit code 1 if the audits and the list differ."""
    if not audits.is_file():
        raise typer.BadParameter(f"there is no {audits}; `warpsmith audit FILE.jsonl --output {audits}` writes it")
    stored = read_audits(audits)
    why = {mark.digest: mark.why for mark in shipped_marks()}
    table = Table("task", "kinds", "why", "s", box=None)
    for audit in stored:
        if audit.findings:
            table.add_row(audit.task, " ".join(audit.kinds), why.get(audit.digest, ""), f"{audit.seconds:.1f}")
    console = Console(width=160)
    console.print(table)
    for audit in stored:
        if audit.failure:
            console.print(f"not audited: {audit.task}: {audit.failure}", markup=False)
    seconds = sorted(audit.seconds for audit in stored)
    print(f"{summarise_audits(stored)}; {sum(seconds):.0f} s, {median(seconds):.1f} s a task in the median")
    for line in (different := differences(stored, shipped_marks())):
        print(line)
    raise typer.Exit(1 if different else 0)


if __name__ == "__main__":
    typer.run(main)
