"""Compares evolving with one-shot sampling, by one policy with frozen weights and as many samples of each task.

    python -m benchmarks.evolve [key=value ...] [--config local] [--seeds 0 1 2]          # on a CPU: a policy after SFT
    python -m benchmarks.evolve --config h200 --policy MODEL --seeds 0                      # on a GPU: a model as it is

Without --policy, each seed trains a policy from scratch by SFT first, whose export both sides use. Prints, for tasks
trained on and held out, after 1, 2, 4, ... samples of a task: the geometric mean over tasks of the speed-up of the best
program so far, where the reference is kept if nothing is faster; evolving as a multiple of one-shot sampling, with its
interval over tasks and seeds; and how many different programs were judged. Finished runs are read and not repeated.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.warpsmith_runs import warpsmith_run
from orchestration.experiments.table import estimate_over_tasks_and_seeds
from orchestration.report import build_report
from orchestration.report.format import speed, speed_interval
from orchestration.run.directory import RunDirectory
from orchestration.run.snapshots import EXPORT

Floats = NDArray[np.float64]
SIDES = ("vanilla", "evolve")
TAUGHT = "taught"


@dataclass(frozen=True)
class Course:
    """One run on one group of tasks: `best`, [samples, tasks]: the best speed-up after so many samples of a task, at
    least 1. `programs`: how many different ones were judged up to there."""

    best: Floats
    programs: list[int]


def course_of(run: RunDirectory, tasks: Sequence[str]) -> Course:
    """The course of a finished run: the samples of its phase in the order of rounds."""
    (stage,) = [stage for group in build_report(run).groups for stage in group.stages if set(tasks) & _tasks(stage)]
    by_task: dict[str, list[float]] = {task: [] for task in tasks}
    programs: dict[str, list[str | None]] = {task: [] for task in tasks}
    for row in stage.rows:
        by_task[row.task_id].append(max(row.over_eager or 1.0, 1.0))
        programs[row.task_id].append(row.program)
    samples = min(map(len, by_task.values()))
    best = np.array([np.maximum.accumulate(values[:samples]) for values in by_task.values()]).T
    counts = [
        len({(task, one) for task, of_task in programs.items() for one in of_task[:count] if one})
        for count in range(1, samples + 1)
    ]
    return Course(best, counts)


def _tasks(stage: object) -> set[str]:
    return {row.task_id for row in stage.rows}  # type: ignore[attr-defined]


def checkpoints(samples: int) -> Iterator[int]:
    """1, 2, 4, ... and the last."""
    count = 1
    while count < samples:
        yield count
        count *= 2
    yield samples


def table_of(title: str, vanilla: Sequence[Course], evolve: Sequence[Course]) -> Table:
    """A row for each number of samples. The courses are by seed."""
    head = ("samples of a task", "one-shot", "evolve", "evolve / one-shot", "programs, one-shot", "programs, evolve")
    table = Table(*head, title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for count in checkpoints(min(len(course.best) for course in (*vanilla, *evolve))):
        logs = [np.log([course.best[count - 1] for course in side]) for side in (vanilla, evolve)]
        means = [estimate_over_tasks_and_seeds(side, _geometric_mean) for side in logs]
        gain = estimate_over_tasks_and_seeds(logs[1] - logs[0], _geometric_mean)
        judged = [str(sum(course.programs[count - 1] for course in side)) for side in (vanilla, evolve)]
        cells = [f"{speed(one.value)} ({speed_interval(one)})" for one in (*means, gain)]
        table.add_row(str(count), *cells, *judged)
    return table


def _geometric_mean(logs: Floats) -> Floats:
    return np.exp(np.nanmean(logs, axis=1))


def policy_of(root: Path, config: str, shared: Sequence[str]) -> str:
    """The export of a policy after SFT, which is trained if it is not there."""
    warpsmith_run(config, f"root={root}", f"name={TAUGHT}", "schedule.phases=[sft]", "assessment.samples=1", *shared)
    run = RunDirectory(str(root), TAUGHT)
    state = run.read_state()
    assert state is not None
    assert state.checkpoint is not None
    return str(Path(run.checkpoints.fetch(state.checkpoint)) / EXPORT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="local")
    parser.add_argument("--policy", default="", help="a model as it is, in place of one after SFT")
    parser.add_argument("--root", type=Path, default=Path("runs/evolve-benchmark"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--samples", type=int, default=4, help="of a task in a round")
    parser.add_argument("overrides", nargs="*", help="key=value ... of all runs")
    given = parser.parse_args()
    runs: dict[str, list[RunDirectory]] = {side: [] for side in SIDES}
    for seed in given.seeds:
        root, shared = given.root / f"seed-{seed}", [f"seed={seed}", "tracking.enabled=false", *given.overrides]
        policy = given.policy or policy_of(root, given.config, shared)
        for side in SIDES:
            size = [f"{side}.rounds={given.rounds}", f"{side}.samples={given.samples}"]
            phase = [f"schedule.phases=[{side}]", f"policy.model={policy}"]
            warpsmith_run(given.config, f"root={root}", f"name={side}", *phase, *size, *shared)
            runs[side].append(RunDirectory(str(root), side))
    console = Console(width=140)
    groups = build_report(runs["evolve"][0]).groups
    for group in groups:
        tasks = sorted(_tasks(group.stages[-1]))
        courses = [[course_of(run, tasks) for run in runs[side]] for side in SIDES]
        console.print(table_of(group.title or "Tasks", *courses))


if __name__ == "__main__":
    main()
