"""Compares settings of contrastive RL that start from the same policy. Whole runs differ already by their SFT.

For each seed the script trains up to self-supervised learning once, and each branch goes on from a copy of that run.
Prints for each branch, over all seeds: the last assessment; how many groups carried a signal, of prompts that show a
program faster than the reference and of other prompts; the entropy per token in the first and in the last five steps;
and how often a step brought a program faster than all before it. Then it prints how each further branch differs from
the first. Intervals are over samples of these very tasks. Finished runs are read and not repeated.

Runs on any machine that can train `--config`: the default, `local`, needs a CPU alone.

    python -m benchmarks.branches [key=value ...] [--seeds 0 1 2] --branch plain \
        --branch "quarter contrastive_rl.negative_weight=0.25"
"""

from __future__ import annotations

import argparse
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.learning import shown
from benchmarks.warpsmith_runs import warpsmith_run
from configs.load import load_config
from orchestration.report import build_report
from orchestration.report.comparison import compare_seeds
from orchestration.report.statistics import AssessmentRow
from orchestration.run.directory import RunDirectory

START, PHASE = "start", "1-contrastive_rl"
BEFORE = "schedule.phases=[sft,self_supervised]"


def branch(root: Path, name: str, config: str, overrides: Sequence[str]) -> RunDirectory:
    """Goes on from a copy of the start with these settings; returns the finished run of that name."""
    run = RunDirectory(str(root), name)
    if not run.exists():
        partial = root / f"{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(root / START, partial)
        copied = RunDirectory(str(root), partial.name)
        copied.write_config(load_config(config, [f"root={root}", f"name={name}", *overrides]))
        state = copied.read_state()
        assert state is not None
        copied.write_state(replace(state, finished=False))
        partial.replace(root / name)
    warpsmith_run(str(root / name / "config.yaml"))
    return run


def signals(runs: Sequence[RunDirectory]) -> tuple[str, str]:
    """The share of groups whose rewards differ, and the number of groups: for prompts that show a program faster than
    the reference, and for the others."""
    columns = ["group", "fastest_shown", "advantage"]
    groups: dict[bool, dict[tuple[int, int, str], set[float]]] = {True: defaultdict(set), False: defaultdict(set)}
    for index, run in enumerate(runs):
        for row in run.samples.read(PHASE, columns=columns).to_pylist():
            faster = (row["fastest_shown"] or 0.0) > 1.0
            groups[faster][index, row["step"], row["group"]].add(round(row["advantage"] or 0.0, 6))
    differ = {faster: [len(values) > 1 for values in by_group.values()] for faster, by_group in groups.items()}
    faster, others = (
        f"{np.mean(flags):.0%} of {len(flags)}" if flags else "" for flags in (differ[True], differ[False])
    )
    return faster, others


def entropies(runs: Sequence[RunDirectory]) -> str:
    """The entropy of a token, in nats: means over the first and the last five steps that trained."""
    ends = []
    for run in runs:
        rows = run.metrics.read(PHASE).to_pylist()
        values = [value for _, value in sorted((r["step"], r["value"]) for r in rows if r["name"] == "train/entropy")]
        ends += [(np.mean(values[:5]), np.mean(values[-5:]))] if values else []
    return ", ".join(f"{value:.2f}" for value in np.mean(ends, axis=0)) if ends else ""


def improvements(runs: Sequence[RunDirectory]) -> str:
    """How often a step brought a program that was faster than all earlier ones for its task, teachers' included."""
    rows = [row for run in runs for row in run.metrics.read(PHASE).to_pylist()]
    return f"{sum(row['value'] for row in rows if row['name'] == 'improved_tasks'):.0f}"


Assessed = Mapping[str, Sequence[Sequence[AssessmentRow]]]
"""The samples of the last assessment, by branch and seed."""


def table_of(branches: Mapping[str, Sequence[RunDirectory]], assessed: Assessed) -> Table:
    """A table with a row for each branch, pooled over its seeds."""
    head = ("branch", "right", "mean over eager", "signal, shown faster", "signal, others", "entropy", "improved")
    table = Table(*head, box=box.SIMPLE_HEAD, pad_edge=False)
    for name, runs in branches.items():
        pooled = compare_seeds(assessed[name], assessed[name], "samples").first
        row = [name, shown(pooled.success, ".1%"), shown(pooled.mean_over_eager, ".2f")]
        table.add_row(*row, *(("",) * 4 if name == START else (*signals(runs), entropies(runs), improvements(runs))))
    return table


def differences(assessed: Assessed) -> Iterator[str]:
    """A line for each further branch: how it differs from the first, compared seed by seed."""
    first, *others = [name for name in assessed if name != START]
    for name in others:
        difference = compare_seeds(assessed[first], assessed[name], "samples").difference
        right, mean = shown(difference.success, "+.1%"), shown(difference.mean_over_eager, "+.2f")
        yield f"{name} minus {first}: right {right}, mean over eager {mean}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="local")
    parser.add_argument("--root", type=Path, default=Path("runs/branches"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--branch", action="append", required=True, help="a name, followed by key=value ...")
    parser.add_argument("overrides", nargs="*", help="key=value ... of all branches and of the start")
    given = parser.parse_args()
    if taken := [text for text in given.overrides if text.startswith(("root=", "name=", "seed="))]:
        parser.error(f"{taken[0]}: branches have names of their own, below --root, and --seeds")
    names = [START, *(text.split()[0] for text in given.branch)]
    if len(set(names)) < len(names):
        parser.error(f"branches need names of their own, none of them {START}")
    branches: dict[str, list[RunDirectory]] = {name: [] for name in names}
    for seed in given.seeds:
        root, shared = given.root / f"seed-{seed}", [f"seed={seed}", "tracking.enabled=false", *given.overrides]
        warpsmith_run(given.config, f"root={root}", f"name={START}", BEFORE, *shared)
        branches[START].append(RunDirectory(str(root), START))
        for text in given.branch:
            name, *own = text.split()
            branches[name].append(branch(root, name, given.config, [*shared, *own]))
    console = Console(width=140)
    assessed = {name: [build_report(run).stages[-1].rows for run in runs] for name, runs in branches.items()}
    console.print(table_of(branches, assessed))
    for line in differences(assessed):
        console.print(line)


if __name__ == "__main__":
    main()
