"""What other settings of contrastive RL bring, from one and the same policy: whole runs differ by what SFT gave them.

Trains up to self-supervised learning once, goes on from copies of that run, a branch each, and prints the last assessed
stage of all; how many groups carried a signal, of prompts that show something faster than the reference and of others;
the entropy per token in the first and in the last five steps; and how often a step brought a program faster than all
before it. What is finished is read, not repeated.

    python -m benchmarks.branches --branch plain --branch "quarter contrastive_rl.negative_weight=0.25" [key=value ...]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.learning import shown
from configs.load import load_config
from orchestration.report import build_report
from orchestration.run_directory import RunDirectory

START, PHASE = "start", "1-contrastive_rl"
BEFORE = "schedule.phases=[sft,self_supervised]"


def warpsmith_run(*arguments: str) -> None:
    """Trains, or goes on; its progress is shown beside ours. Raises CalledProcessError where it fails."""
    command = [sys.executable, "-m", "orchestration.cli", "run", *arguments]
    subprocess.run(command, check=True, stdout=sys.stderr)


def branch(root: Path, name: str, config: str, overrides: Sequence[str]) -> RunDirectory:
    """The finished run of that name, which goes on from a copy of the start with these settings."""
    run = RunDirectory(str(root), name)
    if not run.exists():
        partial = root / f"{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(root / START, partial)
        copied = RunDirectory(str(root), partial.name)
        copied.write_config(load_config(config, [f"root={root}", f"name={name}", *overrides]))
        state = copied.read_state()
        assert state is not None
        copied.commit(replace(state, finished=False))
        partial.replace(root / name)
    warpsmith_run(str(root / name / "config.yaml"))
    return run


def signals(run: RunDirectory) -> tuple[str, str]:
    """The share of groups whose rewards differ, and their number: of prompts that show something faster than the
    reference, and of the others."""
    columns = ["group", "fastest_shown", "advantage"]
    groups: dict[bool, dict[tuple[int, str], set[float]]] = {True: defaultdict(set), False: defaultdict(set)}
    for row in run.read_samples(PHASE, columns=columns).to_pylist():
        faster = (row["fastest_shown"] or 0.0) > 1.0
        groups[faster][row["step"], row["group"]].add(round(row["advantage"] or 0.0, 6))
    carried = {faster: [len(values) > 1 for values in found.values()] for faster, found in groups.items()}
    first, second = (f"{np.mean(one):.0%} of {len(one)}" if one else "" for one in (carried[True], carried[False]))
    return first, second


def entropies(run: RunDirectory) -> str:
    """Of a token, in nats: means over the first and the last five steps that trained."""
    rows = run.read_metrics(PHASE).to_pylist()
    values = [value for _, value in sorted((r["step"], r["value"]) for r in rows if r["name"] == "train/entropy")]
    return f"{np.mean(values[:5]):.2f}, {np.mean(values[-5:]):.2f}" if values else ""


def improvements(run: RunDirectory) -> str:
    """How often a step brought a program that was faster than all before it of its task, teachers' included."""
    found = [row["value"] for row in run.read_metrics(PHASE).to_pylist() if row["name"] == "improved_tasks"]
    return f"{sum(found):.0f}"


def table_of(runs: Sequence[RunDirectory]) -> Table:
    head = ("branch", "right", "geo-mean over eager", "signal, shown faster", "signal, others", "entropy", "improved")
    table = Table(*head, box=box.SIMPLE_HEAD, pad_edge=False)
    for run in runs:
        report = build_report(run)
        last = report.stages[-1].summary
        row = [report.name, shown(last.success, ".1%"), shown(last.over_eager.geometric_mean, ".2f")]
        table.add_row(
            *row, *(("",) * 4 if report.name == START else (*signals(run), entropies(run), improvements(run)))
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="local")
    parser.add_argument("--root", type=Path, default=Path("runs/branches"))
    parser.add_argument("--branch", action="append", default=[], help="a name, and key=value ... behind it")
    parser.add_argument("overrides", nargs="*", help="key=value ... of all of them, the start included")
    given = parser.parse_args()
    if taken := [one for one in given.overrides if one.startswith(("root=", "name="))]:
        parser.error(f"{taken[0]}: branches have names of their own, below --root")
    shared = ["tracking.enabled=false", *given.overrides]
    warpsmith_run(given.config, f"root={given.root}", f"name={START}", BEFORE, *shared)
    runs = [RunDirectory(str(given.root), START)]
    for text in given.branch:
        name, *own = text.split()
        runs.append(branch(given.root, name, given.config, [*shared, *own]))
    Console(width=140).print(table_of(runs))


if __name__ == "__main__":
    main()
