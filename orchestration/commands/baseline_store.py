"""Fills a store of baselines: compiles them side by side, then measures them one by one and prints a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from configs.load import load_config
from evaluators.compile.ahead import build_all
from evaluators.evaluator import Evaluator
from evaluators.failures import InfraError
from evaluators.records import Task
from evaluators.stored.baselines import BaselineResult
from evaluators.tasks import ProgramError, load_tasks
from orchestration.setup.tasks import RunTasks, select_tasks

# RuntimeError: torch raises it in the judge's own calls, also when memory is exhausted.
_FAILURES = (InfraError, ProgramError, OSError, RuntimeError)
_CELL_CHARACTERS = 8
_REASON_CHARACTERS = 160


@dataclass(frozen=True)
class BaselineCounts:
    """How many baselines of how many tasks have a speed-up over eager, and how many are absent."""

    tasks: int
    measured: int
    absent: int

    def __str__(self) -> str:
        return f"{self.tasks} tasks: {self.measured} baselines measured, {self.absent} absent"


def load_task_source(source: str, profile: str) -> list[Task]:
    """The tasks of `bundled`, a folder or a file, at the sizes of a profile.

    For a configuration (`.yaml`): the tasks that its run would have, at its sizes. If that run measures no baselines
    (`evaluator.measure_baselines`): those of them that its assessments measure. Raises TaskError or ConfigError.
    """
    if not source.endswith(".yaml"):
        return load_tasks(source, profile)
    config = load_config(source)
    tasks = RunTasks.draw(select_tasks(config.tasks), config)
    if config.evaluator.measure_baselines == "never":
        return tasks.measured(config.assessment.training_tasks)
    return tasks.assessed


def fill_store(evaluator: Evaluator, tasks: Sequence[Task], builders: int = 1) -> BaselineCounts:
    """Measures the evaluator's baselines of every task, or reads stored ones. Prints one row per task.

    First, everything that must be compiled is compiled, `builders` at a time. A baseline that fails on a task is absent
    for it, and a line below the row says why. A failure of our own is not stored, so the next call tries it again.
    """
    jobs = evaluator.unbuilt_baselines(tasks)
    if min(len(jobs), builders) > 1:  # starting a build process costs seconds
        print(f"compiling {len(jobs)} baselines, {builders} at once", file=sys.stderr, flush=True)
        build_all(jobs, evaluator.device.arch, evaluator.store, evaluator.limits, builders)
    names = [name for name in evaluator.baselines if name != "eager"]
    width = max([len("task"), *(len(task.id) for task in tasks)])
    print("  ".join(["task".ljust(width), "eager ms", *(name.rjust(_CELL_CHARACTERS) for name in names)]), flush=True)
    measured = absent = 0
    for task in tasks:
        results = {name: _measure(evaluator, task, name) for name in names}
        cells = [_cell(result).rjust(max(len(name), _CELL_CHARACTERS)) for name, result in results.items()]
        seconds = next((result.eager_seconds for result in results.values() if result.eager_seconds), None)
        eager = f"{1e3 * seconds:.3f}" if seconds else "-"
        print("  ".join([task.id.ljust(width), eager.rjust(len("eager ms")), *cells]), flush=True)
        for name, result in results.items():
            if result.speedup is None:
                print(f"  {name}: {' '.join(result.reason.split())[:_REASON_CHARACTERS]}", flush=True)
                absent += 1
            else:
                measured += 1
    return BaselineCounts(len(tasks), measured, absent)


def _measure(evaluator: Evaluator, task: Task, name: str) -> BaselineResult:
    try:
        return evaluator.baseline(task, name)
    except _FAILURES as error:
        return BaselineResult(None, f"not measured: {error}")


def _cell(result: BaselineResult) -> str:
    return f"{result.speedup.value:.3f}x" if result.speedup else "-"
