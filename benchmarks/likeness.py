"""How well the likeness to known hacks tells cheats from honest programs.

    python -m benchmarks.likeness [--near 0.5]

Prints a row for each of four sets of programs. For each program the likeness to the nearest hack of the gauntlet other
than itself counts: how many programs are at or above the threshold, and quantiles. Runs no program, on any machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.hack_biased_programs import exploits, tasks
from evaluators.gauntlet import discover
from evaluators.guard.cases import HackCases
from evaluators.guard.ruling import NEAR
from evaluators.records import Candidate
from evaluators.tasks import load_tasks, program_source
from evaluators.tasks.loader import load_variants

Program = tuple[str, str]  # a task's id and a source


def likeness(cases: HackCases, programs: Iterable[Program]) -> list[float]:
    """The likeness of each program to the nearest hack other than itself; honest programs do not count."""
    references = {task.id: program_source(task) for task in load_tasks("bundled")}
    values = []
    for task, source in programs:
        digest = Candidate.propose(task, source, "").digest
        near = cases.nearest(source, reference=references.get(task, ""), without=(digest,))
        values.append(near.hacks[0][1])
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--near", type=float, default=NEAR)
    near = parser.parse_args().near
    gauntlet = discover()
    sets: dict[str, list[Program]] = {
        "the gauntlet's cheats, the others known": [(each.task, each.source) for each in gauntlet if each.is_exploit],
        "three of its techniques at other tasks": [
            (task.id, row["source"]) for task in tasks() for row in exploits(task)
        ],
        "the gauntlet's honest programs": [(each.task, each.source) for each in gauntlet if not each.is_exploit],
        "the bundled tasks' programs": [
            (task.id, variant.source) for task in load_tasks("bundled") for variant in load_variants(task.id)
        ],
    }
    table = Table("programs", "number", f"at least {near:g}", "median", "95 %", "largest", box=None)
    cases = HackCases(Path("does-not-exist.parquet"))
    for name, programs in sets.items():
        values = likeness(cases, programs)
        quantiles = (f"{np.quantile(values, share):.2f}" for share in (0.5, 0.95, 1.0))
        table.add_row(name, str(len(values)), str(sum(value >= near for value in values)), *quantiles)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
