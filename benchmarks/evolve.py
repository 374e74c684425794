"""Compares evolving with one-shot sampling, by one policy with frozen weights: at as many samples of each task, and at
as many evaluations. A program that was judged before costs none, and one-shot sampling repeats itself more: with
--one-shot-rounds it goes on for longer, so that it has as many.

    python -m benchmarks.evolve [key=value ...] [--config local] [--seeds 0 1 2]          # on a CPU: a policy after SFT
    python -m benchmarks.evolve --config h200 --policy MODEL --seeds 0                      # on a GPU: a model as it is

Without --policy, each seed trains a policy from scratch by SFT first, whose export both sides use. Prints, for tasks
trained on and held out, after 1, 2, 4, ... samples of a task: the geometric mean over tasks of the speed-up of the best
program so far, where the reference is kept if nothing is faster; evolving as a multiple of one-shot sampling, with its
interval over tasks and seeds; and how many different programs were judged. Then the same after so many evaluations of
all tasks together. Finished runs are read and not repeated.
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
FEWEST = 25  # evaluations in the first row of a table


@dataclass(frozen=True)
class Course:
    """One run on one group of tasks: `best`, [samples, tasks]: the best speed-up after so many samples of a task, at
    least 1. `programs`: how many different ones were judged up to there."""

    best: Floats
    programs: list[int]

    def after(self, evaluations: int) -> Floats:
        """The best, [tasks], after the last sample up to which so many programs were judged at most."""
        count = sum(programs <= evaluations for programs in self.programs)
        return self.best[count - 1] if count else np.ones(self.best.shape[1])


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


def checkpoints(samples: int, count: int = 1) -> Iterator[int]:
    """`count`, its double, ... and the last."""
    while count < samples:
        yield count
        count *= 2
    yield samples


def table_of(title: str, vanilla: Sequence[Course], evolve: Sequence[Course]) -> Table:
    """A row for each number of samples. The courses are by seed."""
    head = ("samples of a task", "one-shot", "evolve", "evolve / one-shot", "programs, one-shot", "programs, evolve")
    table = Table(*head, title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for count in checkpoints(min(len(course.best) for course in (*vanilla, *evolve))):
        best = [[course.best[count - 1] for course in side] for side in (vanilla, evolve)]
        judged = [str(sum(course.programs[count - 1] for course in side)) for side in (vanilla, evolve)]
        table.add_row(str(count), *_cells(*best), *judged)
    return table


def table_by_evaluations(title: str, vanilla: Sequence[Course], evolve: Sequence[Course]) -> Table:
    """A row for each number of evaluations of a run, over all tasks. The courses are by seed."""
    head = ("evaluations", "one-shot", "evolve", "evolve / one-shot")
    table = Table(*head, title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for count in checkpoints(min(course.programs[-1] for course in (*vanilla, *evolve)), FEWEST):
        best = [[course.after(count) for course in side] for side in (vanilla, evolve)]
        table.add_row(str(count), *_cells(*best))
    return table


def _cells(vanilla: Sequence[Floats], evolve: Sequence[Floats]) -> list[str]:
    """The geometric means over tasks of both, and of their quotient, with intervals; each is [tasks] by seed."""
    logs = np.log(vanilla), np.log(evolve)
    means = [estimate_over_tasks_and_seeds(one, _geometric_mean) for one in (*logs, logs[1] - logs[0])]
    return [f"{speed(one.value)} ({speed_interval(one)})" for one in means]


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
    parser.add_argument("--one-shot-rounds", type=int, default=0, help="rounds of one-shot sampling (as --rounds)")
    parser.add_argument("--samples", type=int, default=4, help="of a task in a round")
    parser.add_argument("overrides", nargs="*", help="key=value ... of all runs")
    given = parser.parse_args()
    runs: dict[str, list[RunDirectory]] = {side: [] for side in SIDES}
    for seed in given.seeds:
        root, shared = given.root / f"seed-{seed}", [f"seed={seed}", "tracking.enabled=false", *given.overrides]
        policy = given.policy or policy_of(root, given.config, shared)
        for side, rounds in zip(SIDES, (given.one_shot_rounds or given.rounds, given.rounds), strict=True):
            size = [f"{side}.rounds={rounds}", f"{side}.samples={given.samples}"]
            phase = [f"schedule.phases=[{side}]", f"policy.model={policy}"]
            warpsmith_run(given.config, f"root={root}", f"name={side}", *phase, *size, *shared)
            runs[side].append(RunDirectory(str(root), side))
    console = Console(width=140)
    groups = build_report(runs["evolve"][0]).groups
    for group in groups:
        tasks = sorted(_tasks(group.stages[-1]))
        courses = [[course_of(run, tasks) for run in runs[side]] for side in SIDES]
        console.print(table_of(group.title or "Tasks", *courses))
        console.print(table_by_evaluations(group.title or "Tasks", *courses))


if __name__ == "__main__":
    main()
