"""How long the evaluator took to judge the programs of a published run, by outcome and by stage.

    python -m benchmarks.judging docs/results/coder

Prints a row for each outcome, with the seconds of a verdict. Reads the rows of a published run, on any machine.
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

STAGES = ("look", "start", "calibrate", "check", "time", "trace")


def verdict_costs(folder: Path) -> dict[tuple[str, bool], list[dict[str, float]]]:
    """The seconds of each verdict by stage, grouped by outcome and by whether a first look was taken. A verdict that
    several steps have counts once. Raises OSError without the run's rows."""
    rows = pq.read_table(folder / "verdicts.parquet", columns=["candidate", "outcome", "cost"]).to_pylist()
    costs: dict[tuple[str, bool], list[dict[str, float]]] = defaultdict(list)
    seen = set()
    for row in rows:
        cost = dict(row["cost"])
        if not cost:
            continue  # the verdict was taken over from another run
        if (row["candidate"], cost.get("total")) not in seen:
            seen.add((row["candidate"], cost.get("total")))
            costs[row["outcome"], "look" in cost].append(cost)
    return costs


def by_outcome(costs: dict[tuple[str, bool], list[dict[str, float]]]) -> Table:
    """A table with a row for each outcome, with a first look and without: the number of verdicts, median seconds, mean
    seconds of each stage, and the share of all seconds."""
    everything = sum(cost.get("total", 0.0) for group in costs.values() for cost in group)
    head = ("outcome", "looked", "verdicts", "median, s", *STAGES, "of all")
    table = Table(*head, box=box.SIMPLE_HEAD, pad_edge=False)
    totals = {key: [cost.get("total", 0.0) for cost in group] for key, group in costs.items()}
    for key in sorted(costs, key=lambda group: -sum(totals[group])):
        means = (np.mean([cost.get(name, 0.0) for cost in costs[key]]) for name in STAGES)
        table.add_row(
            key[0], "yes" if key[1] else "", str(len(costs[key])), f"{np.median(totals[key]):.2f}",
            *(f"{mean:.2f}" if mean else "" for mean in means), f"{sum(totals[key]) / max(everything, 1e-9):.0%}",
        )  # fmt: skip
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder that `warpsmith report RUN --publish FOLDER` wrote")
    Console(width=140).print(by_outcome(verdict_costs(parser.parse_args().folder)))


if __name__ == "__main__":
    main()
