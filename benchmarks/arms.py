"""Compares the arms of a series: branches of one policy after SFT, each with several seeds.

    python -m benchmarks.arms runs/grpo-0,runs/grpo-1 runs/contrastive-0,runs/contrastive-1
    python -m benchmarks.arms ARM ARM --tasks 'level?/?' 'level?/??' 'level?/???'

The second form takes KernelBench's tasks alone, whose numbers have up to three digits.

An arm is a list of published runs, or of run directories, with commas between them, one of each seed, in the same
order of seeds. Prints, for tasks trained on and held out: the last stage of each arm, over all seeds; and the gain of
each arm over the stage `sft`, and over the arm before it, of all samples with failures as 1x, with intervals over tasks
and seeds (`orchestration.report.comparison.pooled_gain`). Needs no GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from rich import box
from rich.console import Console
from rich.table import Table

from orchestration.report import build_report
from orchestration.report.assemble import Group, Report
from orchestration.report.comparison import pooled_gain
from orchestration.report.format import share, share_interval, speed, speed_interval, value_of
from orchestration.report.published import restore
from orchestration.report.statistics import AssessmentRow, summarise
from orchestration.run.directory import RunDirectory

START = "sft"
Rows = list[AssessmentRow]


def read(folder: Path, root: Path) -> Report:
    """The report of a run directory or of a published run; `root` is a folder for what is restored of the latter.
    Raises OSError or RunDirectoryError."""
    if (folder / "samples.parquet").is_file():
        return build_report(restore(folder, root))
    return build_report(RunDirectory(folder.parent, folder.name))


def rows_of(group: Group, stage: str, patterns: Sequence[str]) -> Rows:
    """The samples of a stage (empty: the last) on tasks that a pattern matches, or on all without patterns. Raises
    ValueError without such a stage."""
    found = [one for one in group.stages if one.label == stage] if stage else list(group.stages[-1:])
    if not found:
        raise ValueError(f"no stage {stage}: only {', '.join(one.label for one in group.stages)}")
    return [
        row for row in found[0].rows if not patterns or any(fnmatchcase(row.task_id, pattern) for pattern in patterns)
    ]


def table_of(title: str, arms: Sequence[str], before: Sequence[Rows], after: Sequence[Sequence[Rows]]) -> Table:
    """A row for the common start, and one for each arm. `before`: by seed. `after`: by arm and seed."""
    head = ("samples", "right", "new, faster", "own kernel", "over the best", f"times {START}", "times the arm before")
    table = Table(title, *head, box=box.SIMPLE_HEAD, pad_edge=False)
    previous: Sequence[Rows] | None = None
    for name, seeds in ((START, before), *zip(arms, after, strict=True)):
        summary = summarise([row for rows in seeds for row in rows], name)
        own, best = summary.own_kernel, summary.improved
        gains = [
            "" if base is None or seeds is before or (gain := pooled_gain(base, seeds)) is None
            else f"{speed(gain.value)} ({speed_interval(gain)})"
            for base in (before, previous)
        ]  # fmt: skip
        shares = [
            f"{share(value_of(one))} ({share_interval(one)})" if one else "-"
            for one in (summary.success, summary.new_faster)
        ]
        table.add_row(name, str(summary.samples), *shares, share(value_of(own)), share(value_of(best)), *gains)
        previous = None if seeds is before else seeds
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arms", nargs="+", help="runs of one arm, one of each seed, with commas between them")
    parser.add_argument("--tasks", nargs="+", default=[], help="patterns: only tasks whose id one of them matches")
    given = parser.parse_args()
    console = Console(width=170)
    with TemporaryDirectory() as root:
        places = [[Path(word) for word in arm.split(",")] for arm in given.arms]
        reports = [
            [read(folder, Path(root) / f"{arm}-{seed}") for seed, folder in enumerate(folders)]
            for arm, folders in enumerate(places)
        ]
    names = [reports_of_arm[0].name for reports_of_arm in reports]
    try:
        for index, group in enumerate(reports[0][0].groups):
            groups = [[report.groups[index] for report in arm] for arm in reports]
            before = [rows_of(one, START, given.tasks) for one in groups[0]]
            after = [[rows_of(one, "", given.tasks) for one in arm] for arm in groups]
            if any(before):
                console.print(table_of(group.title or "tasks", names, before, after))
    except (ValueError, IndexError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
