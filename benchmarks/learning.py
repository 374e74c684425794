"""Does the system learn? Runs the demo's schedule for several seeds and gives confidence intervals.

    python -m benchmarks.learning [--seeds 0 1 2] [key=value ...]

Prints, pooled over the seeds: success rate and mean speed-up after each phase, whether self-supervised learning raised
the success rate over supervised fine-tuning, and whether contrastive RL raised the mean speed-up over self-supervised
learning. These intervals are over samples, for the demo's own tasks; a further line has them over tasks. Exit code 1 if
either of the first does not lie above 0. Finished runs are read and not repeated. Runs on a CPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.warpsmith_runs import warpsmith_run
from evaluators.records import Estimate
from orchestration.report import Report, build_report
from orchestration.report.comparison import compare_seeds
from orchestration.report.statistics import AssessmentRow
from orchestration.run.directory import RunDirectory

SFT, SELF_SUPERVISED, CONTRASTIVE = "1-sft", "1-self_supervised", "1-contrastive_rl"


def train(seed: int, root: Path, overrides: Sequence[str]) -> Report:
    """Makes the run with this seed unless it is finished; returns its report."""
    name = f"learning-seed-{seed}"
    seconds = warpsmith_run("local", f"root={root}", f"name={name}", f"seed={seed}", *overrides)
    print(f"seed {seed}: {seconds:.0f} s", file=sys.stderr)
    return build_report(RunDirectory(str(root), name))


def rows_of(reports: Sequence[Report], stage: str) -> list[Sequence[AssessmentRow]]:
    """The samples of a stage's assessment, by seed."""
    return [next(each.rows for each in report.stages if each.key == stage) for report in reports]


def shown(estimate: Estimate | None, form: str) -> str:
    """A figure with its interval, or `-` without one."""
    if estimate is None:
        return "-"
    return f"{estimate.value:{form}} ({estimate.low:{form}} to {estimate.high:{form}})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--root", type=Path, default=Path("runs"))
    parser.add_argument("overrides", nargs="*", help="key=value ... of the run's configuration")
    arguments = parser.parse_args()
    reports = [train(seed, arguments.root, arguments.overrides) for seed in arguments.seeds]

    console = Console(width=120)
    head = ("stage", "success rate", "mean speed-up over eager", "by seed: success, faster, mean speed-up")
    table = Table(*head, box=None)
    stages = ["base", SFT, SELF_SUPERVISED, CONTRASTIVE]
    for stage in stages:
        rows = rows_of(reports, stage)
        pooled = compare_seeds(rows, rows, "samples").first
        summaries = [next(each.summary for each in report.stages if each.key == stage) for report in reports]
        by_seed = [
            f"{summary.success.value:.0%} {summary.faster.value:.0%}"
            + (f" {summary.over_eager.mean.value:.2f}x" if summary.over_eager.mean else "")
            for summary in summaries
            if summary.success and summary.faster
        ]
        table.add_row(stage, shown(pooled.success, ".1%"), shown(pooled.mean_over_eager, ".2f"), ", ".join(by_seed))
    console.print(table)

    sft, self_supervised, contrastive = (rows_of(reports, stage) for stage in (SFT, SELF_SUPERVISED, CONTRASTIVE))
    on_these, on_others = (
        (
            compare_seeds(sft, self_supervised, over).difference.success,
            compare_seeds(self_supervised, contrastive, over).difference.mean_over_eager,
        )
        for over in ("samples", "tasks")
    )
    success, speed = on_these
    console.print(f"success rate, self-supervised minus SFT: {shown(success, '+.1%')}")
    console.print(f"mean speed-up, contrastive RL minus self-supervised: {shown(speed, '+.2f')}")
    console.print(f"over other tasks like these: {shown(on_others[0], '+.1%')}, {shown(on_others[1], '+.2f')}")
    holds = all(estimate is not None and estimate.low > 0 for estimate in (success, speed))
    console.print("both intervals lie above 0" if holds else "NOT SHOWN: an interval does not lie above 0")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
