"""What the evaluator measures of programs that are the reference again, whose true speed-up is 1.

A policy writes such copies by itself, and they are judged like any program: nobody told the evaluator which they are.

    python -m benchmarks.copies docs/results/right-alone
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from evaluators.records import Estimate, Outcome
from learners.records import REFERENCE


def copies(folder: Path) -> dict[str, Estimate]:
    """The speed-ups over eager of the copies in a published run, by digest. Raises OSError without its rows."""
    samples = pq.read_table(folder / "samples.parquet", columns=["candidate_digest", "copy_of"]).to_pylist()
    copied = {row["candidate_digest"] for row in samples if row["copy_of"] == REFERENCE}
    verdicts = pq.read_table(folder / "verdicts.parquet", columns=["candidate", "outcome", "speedups"]).to_pylist()
    return {
        row["candidate"]: Estimate(**dict(row["speedups"])["eager"])
        for row in verdicts
        if row["candidate"] in copied and row["outcome"] == Outcome.OK
    }


def summary(estimates: Sequence[Estimate]) -> str:
    """Median, spread and extremes of the speed-ups, and how many of their intervals hold 1."""
    values = np.array([one.value for one in estimates])
    low, high = np.quantile(values, [0.05, 0.95])
    held = sum(one.low <= 1.0 <= one.high for one in estimates)
    return (
        f"{len(values)} programs that are the reference again: median {np.median(values):.4f}x, "
        f"nine of ten between {low:.3f}x and {high:.3f}x, all between {values.min():.3f}x and {values.max():.3f}x; "
        f"{held} of the {len(values)} intervals hold 1 ({held / len(values):.0%})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what `warpsmith report RUN --publish FOLDER` wrote")
    found = copies(parser.parse_args().folder)
    print(summary(list(found.values())) if found else "no program is the reference again")


if __name__ == "__main__":
    main()
