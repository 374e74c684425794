"""The course of a published run, from its rows.

    python -m benchmarks.course docs/results/coder

Prints tables: the rollouts of contrastive RL by blocks of steps; the tasks whose groups carried a signal beside the
others, before and after that phase; how the answers to contrastive prompts use them; and how right, how new and how
fast fresh samples are after each phase, beside constant policies. Reads the rows of a published run, on any machine.

    python -m benchmarks.course docs/results/rehearsed --baselines docs/results/*

takes the baselines on tasks without a right program from other published runs on the same GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table

from evaluators.records import Estimate, Outcome
from evaluators.reward import FASTER
from evaluators.tasks import load_tasks
from evaluators.tasks.loader import load_variants
from orchestration.report.assemble import Group, Stage, build_report
from orchestration.report.comparison import overall, overall_gain
from orchestration.report.format import share, speed, speed_interval, value_of
from orchestration.report.published import published_baselines, restore
from prompts.analysis import KnownTexts, exemplars_named, speedups_named
from prompts.parse import parse_response

PHASE = "-contrastive_rl"  # follows the number of its cycle
COLUMNS = ["phase", "step", "candidate_digest", "outcome", "copy_of", "response", "advantage"]


def speedups(folder: Path) -> dict[str, tuple[float, float]]:
    """The speed-ups over eager and over the best baseline of a published run's right programs, by digest.

    Raises OSError without its rows."""
    rows = pq.read_table(folder / "verdicts.parquet", columns=["candidate", "speedups"]).to_pylist()
    values = {row["candidate"]: {name: over["value"] for name, over in row["speedups"]} for row in rows}
    return {digest: (over["eager"], min(over.values())) for digest, over in values.items() if over}


def by_steps(folder: Path, every: int) -> Table:
    """A table with a row for `every` steps of a cycle.

    Columns: the number of rollouts; the shares of them that are right, that are right copies, and that are faster than
    eager and than the best baseline; for the right ones the geometric mean speed-ups over both, and the median over the
    best; the share of all positive advantage that went to programs faster than eager; the share of the published
    responses that use torch.compile; and the median seconds of a step."""
    rows = pq.read_table(folder / "samples.parquet", columns=COLUMNS).to_pylist()
    blocks: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in rows:
        if cycle := _cycle_of(row):
            blocks.setdefault((cycle, row["step"] // every), []).append(row)
    speeds = speedups(folder)
    metrics = pq.read_table(folder / "metrics.parquet").to_pylist()
    took = {(row["phase"], row["step"]): row["value"] for row in metrics if row["name"] == "step_seconds"}
    head = ("cycle", "steps", "rollouts", "right", "copies", "over eager", "over the best", "vs eager", "vs the best")
    table = Table(*head, "median", "for speed", "compiled", "step, s", box=box.SIMPLE_HEAD, pad_edge=False)
    for (cycle, block), group in sorted(blocks.items()):
        right = [row for row in group if row["outcome"] == Outcome.OK]
        eager, best = np.array([speeds[row["candidate_digest"]] for row in right]).reshape(-1, 2).T
        texts = [row["response"] for row in group if row["response"]]
        table.add_row(
            str(cycle),
            f"{block * every + 1} to {1 + max(row['step'] for row in group)}",
            str(len(group)),
            f"{len(right) / len(group):.1%}",
            f"{sum(bool(row['copy_of']) for row in right) / len(group):.1%}",
            *(f"{np.sum(over > FASTER) / len(group):.1%}" for over in (eager, best)),
            *(_geometric_mean(over) for over in (eager, best)),
            f"{np.median(best):.2f}x" if right else "",
            _for_speed(group, speeds),
            f"{sum('torch.compile' in text for text in texts) / len(texts):.0%} of {len(texts)}" if texts else "",
            f"{np.median([took[key] for key in {(row['phase'], row['step']) for row in group}]):.1f}",
        )
    return table


def by_signal(folder: Path) -> Table:
    """A table with a row for each kind of tasks in the last cycle's contrastive RL: tasks with a group that carried a
    signal, tasks without such a group, and tasks without any group, such as those held out.

    Columns: the number of tasks, their groups, the groups with a signal, and how many fresh samples before and after
    the phase are right and faster than eager."""
    rows = pq.read_table(folder / "samples.parquet", columns=[*COLUMNS, "task_id", "group"]).to_pylist()
    speeds = speedups(folder)
    cycle = max(map(_cycle_of, rows))
    stages = {row["phase"] for row in rows}
    after = f"assess/{cycle}{PHASE}"
    before = next(
        stage for stage in (f"assess/{cycle}-self_supervised", f"assess/{cycle}-sft", "assess/base") if stage in stages
    )
    groups: dict[str, dict[tuple[int, str], bool]] = {row["task_id"]: {} for row in rows}
    for row in rows:
        if _cycle_of(row) == cycle:
            of_task, key = groups[row["task_id"]], (row["step"], row["group"])
            of_task[key] = of_task.get(key, False) or bool(row["advantage"])
    kinds: dict[str, list[str]] = {"with a signal": [], "without": [], "not drawn, or held out": []}
    for task, signals in groups.items():
        name = "with a signal" if any(signals.values()) else "without" if signals else "not drawn, or held out"
        kinds[name].append(task)
    table = Table(
        "tasks", "", "groups", "signal", "before: faster", "after: faster", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for name, tasks in kinds.items():
        fresh = [
            [row for row in rows if row["phase"] == stage and row["task_id"] in tasks] for stage in (before, after)
        ]
        of_kind = [signal for task in tasks for signal in groups[task].values()]
        table.add_row(
            name,
            str(len(tasks)),
            str(len(of_kind)),
            str(sum(of_kind)),
            *(_faster(samples, speeds) for samples in fresh),
        )
    return table


def by_stage(group: Group) -> Table:
    """A table with a row for each stage, and for each constant policy: its fresh samples; the shares of them that are
    right, right copies, right lessons, lessons among the right ones, and new; the shares that are faster than eager,
    and new and faster; the speed of all of them, where a sample that is not right counts as the reference; and that
    speed as a multiple of the stage before, with its interval over tasks and over samples."""
    head = (group.title or "stage", "samples", "right", "copies", "lessons", "of right", "new", "faster", "new, faster")
    speeds = ("all, failures as 1x", "times before", "over samples")
    table = Table(*head, *speeds, box=box.SIMPLE_HEAD, pad_edge=False)
    before: Stage | None = None
    for stage in (*group.stages, *group.constants):
        own, s = stage.rows, stage.summary
        gain = before if stage in group.stages else None
        over_tasks, over_samples = (
            overall_gain(gain.rows, own, over) if gain else None for over in ("tasks", "samples")
        )
        table.add_row(
            stage.label,
            str(len(own)),
            *(share(value_of(estimate)) for estimate in (s.success, s.copies, s.lessons)),
            share(s.lessons_of_correct),
            *(share(value_of(estimate)) for estimate in (s.new, s.faster, s.new_faster)),
            _with_interval(overall(own)),
            _with_interval(over_tasks),
            f"({speed_interval(over_samples)})" if over_samples else "",
        )
        before = stage
    return table


def by_answer(folder: Path) -> Table:
    """A table of the answers to contrastive prompts, by phase, as far as their text is published.

    Columns: the number of answers whose prompt shows a program faster than the reference; how many of their analyses
    name any implementation by a number, and any speed-up with decimals, whether or not the prompt shows it; and the
    mean share of an analysis that stands word by word in the analysis of a bundled program."""
    rows = pq.read_table(folder / "samples.parquet").to_pylist()
    known = KnownTexts(variant.analysis for task in load_tasks("bundled") for variant in load_variants(task.id))
    table = Table("answers to", "", "name one", "name a speed-up", "lesson text", box=box.SIMPLE_HEAD, pad_edge=False)
    analyses: dict[str, list[str]] = {}
    for row in rows:
        if row["response"] and (row.get("fastest_shown") or 1.0) > 1.0:
            analysis = parse_response(row["response"], row["finish_reason"]).analysis
            if analysis:
                analyses.setdefault(row["phase"], []).append(analysis)
    for phase, texts in analyses.items():
        shares = [value for text in texts if (value := known.share_of(text)) is not None]
        speeds = (any(decimals for _, decimals in speedups_named(text)) for text in texts)
        named = sum(bool(exemplars_named(text)) for text in texts)
        table.add_row(phase, str(len(texts)), str(named), str(sum(speeds)), f"{np.mean(shares):.0%}" if shares else "")
    return table


def _with_interval(estimate: Estimate | None) -> str:
    return "" if estimate is None else f"{speed(estimate.value)} ({speed_interval(estimate)})"


def _cycle_of(row: Mapping[str, Any]) -> int:
    """The number of the cycle, for a row of its contrastive RL; 0 for a row of another phase or of an assessment."""
    number = row["phase"].removesuffix(PHASE)
    return int(number) if number.isdecimal() else 0


def _faster(samples: Sequence[Mapping[str, Any]], speeds: Mapping[str, tuple[float, float]]) -> str:
    fast = sum(row["outcome"] == Outcome.OK and speeds[row["candidate_digest"]][0] > FASTER for row in samples)
    return f"{fast} of {len(samples)}" if samples else ""


def _for_speed(rollouts: Sequence[dict[str, Any]], speeds: Mapping[str, tuple[float, float]]) -> str:
    rewarded = [row for row in rollouts if (row["advantage"] or 0.0) > 0.0]
    fast = sum(row["advantage"] for row in rewarded if speeds[row["candidate_digest"]][0] > FASTER)
    return f"{fast / sum(row['advantage'] for row in rewarded):.0%}" if rewarded else ""


def _geometric_mean(values: Sequence[float]) -> str:
    return f"{np.exp(np.mean(np.log(values))):.2f}x" if len(values) else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder that `warpsmith report RUN --publish FOLDER` wrote")
    parser.add_argument("--every", type=int, default=5, help="steps a row")
    parser.add_argument("--baselines", type=Path, nargs="+", default=[], help="further published runs on the same GPU")
    given = parser.parse_args()
    console = Console(width=160)
    console.print(by_steps(given.folder, given.every))
    console.print(by_signal(given.folder))
    if "fastest_shown" in pq.read_schema(given.folder / "samples.parquet").names:
        console.print(by_answer(given.folder))
    baselines = published_baselines([folder for folder in given.baselines if folder.is_dir()])
    with TemporaryDirectory() as root:
        report = build_report(restore(given.folder, Path(root)), baselines)
    for group in report.groups:
        console.print(by_stage(group))


if __name__ == "__main__":
    main()
