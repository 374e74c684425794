"""What became of a run's teachers' programs, by whose kernels they run, and what their verdicts took.

    python -m benchmarks.lessons docs/results/second-window broad [key=value ...]

Reads the verdicts of step 0 of SFT from a published page, and the programs, of which a page has none, from the tasks of
the configuration. Prints a row for each kind: programs, right ones, lessons (`sft.min_speedup`), and the mean seconds
of a right one's verdict; then how they ended, and what repetitions there were.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from configs.load import load_config
from evaluators.records import Candidate, Outcome
from evaluators.tasks import profile_of
from evaluators.tasks.loader import TaskVariants
from orchestration.step.teachers import KINDS, kind_of


def verdicts_of(page: Path, source: str, profile: str, min_speedup: float) -> pd.DataFrame:
    """A row for each verdict. `source`, `profile`: where the tasks are, and for which device. Raises KeyError for a
    program that the tasks do not have."""
    rows = pd.read_parquet(page / "verdicts.parquet")
    rows = rows[rows.phase == "1-sft"]
    variants = TaskVariants(source, profile)
    programs = {
        Candidate.propose(task, each.source, "").digest: each.source
        for task in set(rows.task)
        for each in variants.of(task)
    }
    speedups = [dict(each)["eager"]["value"] if len(each) else None for each in rows.speedups]
    table = pd.DataFrame({"outcome": rows.outcome, "speedup": pd.Series(speedups, rows.index, dtype=float)})
    table["kind"] = [kind_of(programs[digest]) for digest in rows.candidate]
    table["right"] = table.outcome == Outcome.OK
    table["lesson"] = table.right & (table.speedup >= min_speedup)
    seconds = pd.Series([dict(each).get("total") for each in rows.cost], rows.index, dtype=float)
    return table.assign(seconds=seconds.where(table.right), times=rows.measurements.map(len))


def main() -> None:
    page, name, *overrides = sys.argv[1:]
    config = load_config(name, ["name=lessons", *overrides])
    profile = profile_of(config.evaluator.arch)
    table = verdicts_of(Path(page), config.tasks.source, profile, config.sft.min_speedup)
    kinds = table.groupby("kind").agg(
        programs=("right", "size"), right=("right", "sum"), lessons=("lesson", "sum"), seconds=("seconds", "mean")
    )
    print(kinds.reindex(KINDS).round(1).to_string())
    print(", ".join(f"{outcome} {count}" for outcome, count in table.outcome.value_counts().items()))
    right = table[table.right]
    again = right[(right.times > 1) & right.speedup.between(0.98, 1.02)]
    print(f"as fast as the reference (0.98x to 1.02x), and measured again: {len(again)}")
    once, median = right[right.times == 0].seconds.mean(), right.seconds.median()
    print(f"a right program that was measured once: {once:.1f} s; any, in the median: {median:.1f} s")


if __name__ == "__main__":
    main()
