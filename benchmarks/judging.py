"""What judging took in a published run: seconds a verdict, by its outcome and by what they were spent on.

python -m benchmarks.judging docs/results/coder
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table

SPENT = ("look", "start", "calibrate", "check", "time", "trace")


def verdict_costs(folder: Path) -> dict[tuple[str, bool], list[dict[str, float]]]:
    """The seconds of each verdict by what they were spent on, by outcome and by whether a look came first. A verdict
    that several steps have counts once. Raises OSError without the run's rows."""
    rows = pq.read_table(folder / "verdicts.parquet", columns=["candidate", "outcome", "cost"]).to_pylist()
    found: dict[tuple[str, bool], list[dict[str, float]]] = defaultdict(list)
    seen = set()
    for row in rows:
        cost = dict(row["cost"])
        if not cost:
            continue  # taken over from another run
        if (row["candidate"], cost.get("total")) not in seen:
            seen.add((row["candidate"], cost.get("total")))
            found[row["outcome"], "look" in cost].append(cost)
    return found


def by_outcome(costs: dict[tuple[str, bool], list[dict[str, float]]]) -> Table:
    """A row an outcome, those with a look apart: verdicts, median seconds, mean seconds by what they were spent on, and
    the share of all seconds."""
    everything = sum(cost.get("total", 0.0) for group in costs.values() for cost in group)
    head = ("outcome", "looked", "verdicts", "median, s", *SPENT, "of all")
    table = Table(*head, box=box.SIMPLE_HEAD, pad_edge=False)
    totals = {key: [cost.get("total", 0.0) for cost in group] for key, group in costs.items()}
    for key in sorted(costs, key=lambda one: -sum(totals[one])):
        means = (np.mean([cost.get(name, 0.0) for cost in costs[key]]) for name in SPENT)
        table.add_row(
            key[0], "yes" if key[1] else "", str(len(costs[key])), f"{np.median(totals[key]):.2f}",
            *(f"{mean:.2f}" if mean else "" for mean in means), f"{sum(totals[key]) / max(everything, 1e-9):.0%}",
        )  # fmt: skip
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what `warpsmith report RUN --publish FOLDER` wrote")
    Console(width=140).print(by_outcome(verdict_costs(parser.parse_args().folder)))


if __name__ == "__main__":
    main()
