"""How far the likeness to known hacks tells cheats from honest programs.

Prints, for sets of programs, the likeness of each to the nearest hack of the gauntlet but itself: how many are at or
above the threshold, and quantiles. Nothing is executed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.hack_biased_programs import exploits, tasks
from configs.schema import GuardConfig
from evaluators.gauntlet import discover
from evaluators.guard.cases import HackCases
from evaluators.records import Candidate
from evaluators.tasks import load_tasks, program_source
from evaluators.tasks.loader import load_variants

Program = tuple[str, str]  # a task's id and a source


def likeness(cases: HackCases, programs: Iterable[Program]) -> list[float]:
    """Of each program to the nearest hack but itself, whatever honest ones are like."""
    references = {task.id: program_source(task) for task in load_tasks("bundled")}
    found = []
    for task, source in programs:
        digest = Candidate.propose(task, source, "").digest
        near = cases.nearest(source, reference=references.get(task, ""), without=(digest,))
        found.append(near.hacks[0][1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--near", type=float, default=GuardConfig().near)
    near = parser.parse_args().near
    gauntlet = discover()
    sets: dict[str, list[Program]] = {
        "the gauntlet's cheats, the others known": [(one.task, one.source) for one in gauntlet if one.is_exploit],
        "three of its techniques at other tasks": [
            (task.id, row["source"]) for task in tasks() for row in exploits(task)
        ],
        "the gauntlet's honest programs": [(one.task, one.source) for one in gauntlet if not one.is_exploit],
        "the bundled tasks' programs": [
            (task.id, one.source) for task in load_tasks("bundled") for one in load_variants(task.id)
        ],
    }
    table = Table("programs", "number", f"at least {near:g}", "median", "95 %", "largest", box=None)
    cases = HackCases(Path("does-not-exist.parquet"))
    for name, programs in sets.items():
        found = likeness(cases, programs)
        quantiles = (f"{np.quantile(found, share):.2f}" for share in (0.5, 0.95, 1.0))
        table.add_row(name, str(len(found)), str(sum(one >= near for one in found)), *quantiles)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
