"""Programs of a published run that copy a program of their prompt, and the speed-ups that were measured for them.

    python -m benchmarks.copies docs/results/right-alone

A copy of the reference has a true speed-up of 1. A policy writes such copies by itself, and the evaluator judges them
like any program, without knowing that they are copies. So they show how far its verdicts can be trusted.

Prints a row for each phase with the number of copies, then the spread of the speed-ups. Reads the rows of a published
run, on any machine.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table

from evaluators.records import Estimate, Outcome
from learners.records import EXEMPLAR, REFERENCE
from orchestration.report.keys import ASSESSMENT


def copies(folder: Path) -> dict[str, Estimate]:
    """The speed-ups over eager of the reference's copies in a published run, by digest. Raises OSError without rows."""
    samples = pq.read_table(folder / "samples.parquet", columns=["candidate_digest", "copy_of"]).to_pylist()
    copied = {row["candidate_digest"] for row in samples if row["copy_of"] == REFERENCE}
    verdicts = pq.read_table(folder / "verdicts.parquet", columns=["candidate", "outcome", "speedups"]).to_pylist()
    return {
        row["candidate"]: Estimate(**dict(row["speedups"])["eager"])
        for row in verdicts
        if row["candidate"] in copied and row["outcome"] == Outcome.OK
    }


def by_phase(folder: Path) -> Table:
    """A table with a row for each phase and assessment: its responses, the right ones among them, and how many of these
    are copies. For training phases also the number of different programs in a step, the seconds of a step, and the
    learner's share of these."""
    columns = ["phase", "step", "candidate_digest", "outcome", "copy_of"]
    phases: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in pq.read_table(folder / "samples.parquet", columns=columns).to_pylist():
        phases[row["phase"]].append(row)
    metrics: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in pq.read_table(folder / "metrics.parquet").to_pylist():
        metrics[row["phase"], row["name"]].append(row["value"])
    head = ("phase", "responses", "right", "reference", "exemplar", "else", "programs a step", "step, s", "learner")
    table = Table(*head, box=box.SIMPLE_HEAD, pad_edge=False)
    for phase, rows in phases.items():
        right = Counter(row["copy_of"] for row in rows if row["outcome"] == Outcome.OK)
        steps = defaultdict(set)
        for row in rows:
            steps[row["step"]].add(row["candidate_digest"])
        copied = (right[REFERENCE], right[EXEMPLAR])
        counts = (right.total(), *copied, right.total() - sum(copied))
        programs = [float(len(step - {None})) for step in steps.values()]
        table.add_row(
            phase, str(len(rows)), *map(str, counts), _range(programs, "{:.0f}"),
            _range(metrics[phase, "step_seconds"], "{:.1f}"), _range(metrics[phase, "utilisation/learner"], "{:.0%}"),
        )  # fmt: skip
    return table


def lessons(folder: Path, least: float = 1.05) -> str:
    """A sentence: how many programs of teachers are verified, and how many are over `least` times as fast as eager."""
    rows = pq.read_table(folder / "verdicts.parquet", columns=["phase", "candidate", "outcome", "speedups"]).to_pylist()
    taught = {
        row["candidate"]: dict(row["speedups"])["eager"]["value"]
        for row in rows
        if row["outcome"] == Outcome.OK and row["phase"].endswith("-sft") and not row["phase"].startswith(ASSESSMENT)
    }
    fast = sum(speedup > least for speedup in taught.values())
    return f"{len(taught)} verified programs of teachers; {fast} of them are more than {least:g} times as fast as eager"


def _range(values: Sequence[float], form: str) -> str:
    return " to ".join(dict.fromkeys(form.format(value) for value in (min(values), max(values)))) if values else ""


def summary(estimates: Sequence[Estimate]) -> str:
    """A sentence with median, spread and extremes of the speed-ups, and how many of their intervals contain 1."""
    values = np.array([estimate.value for estimate in estimates])
    low, high = np.quantile(values, [0.05, 0.95])
    held = sum(estimate.low <= 1.0 <= estimate.high for estimate in estimates)
    return (
        f"{len(values)} programs that are the reference again: median {np.median(values):.4f}x, "
        f"nine of ten between {low:.3f}x and {high:.3f}x, all between {values.min():.3f}x and {values.max():.3f}x; "
        f"{held} of the {len(values)} intervals hold 1 ({held / len(values):.0%})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder that `warpsmith report RUN --publish FOLDER` wrote")
    folder = parser.parse_args().folder
    if "copy_of" not in pq.read_schema(folder / "samples.parquet").names:
        parser.error(f"{folder} was published before copies were told; publish it again")
    estimates = list(copies(folder).values())
    Console(width=140).print(by_phase(folder))
    print(lessons(folder))
    print(summary(estimates) if estimates else "no program is the reference again")


if __name__ == "__main__":
    main()
