"""Fills a store of baselines: builds them side by side, then measures one after the other into a table that grows."""

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
from orchestration.setup.tasks import marks_of_tasks, select_tasks, without_marked

# RuntimeError: what torch raises in the judge's own calls, out of memory among them.
_FAILURES = (InfraError, ProgramError, OSError, RuntimeError)
_CELL_CHARACTERS = 8
_REASON_CHARACTERS = 160


@dataclass(frozen=True)
class Filled:
    """How many baselines of how many tasks have a speed-up over eager, and how many are absent."""

    tasks: int
    measured: int
    absent: int

    def __str__(self) -> str:
        return f"{self.tasks} tasks: {self.measured} baselines measured, {self.absent} absent"


def tasks_named(source: str, profile: str) -> list[Task]:
    """The tasks of `bundled`, a folder or a file, at the sizes of a profile; or those that a run of a configuration
    (`.yaml`) would have, at its sizes. Raises TaskError or ConfigError."""
    if not source.endswith(".yaml"):
        return load_tasks(source, profile)
    config = load_config(source).tasks
    named = select_tasks(config)
    return without_marked(named, marks_of_tasks(named, config), config)


def fill_store(evaluator: Evaluator, tasks: Sequence[Task], builders: int = 1) -> Filled:
    """Measures the evaluator's baselines of every task, or reads them where the store has them; prints a row a task.

    What has to be compiled is, before the first is measured, with `builders` at once.
    A baseline that fails on a task is absent there, and a line below says why. A failure of our own is not stored, so
    it is tried again the next time.
    """
    jobs = evaluator.unbuilt_baselines(tasks)
    if min(len(jobs), builders) > 1:  # a process of its own costs seconds
        print(f"compiling {len(jobs)} baselines, {builders} at once", file=sys.stderr, flush=True)
        build_all(jobs, evaluator.device.arch, evaluator.store, evaluator.limits, builders)
    names = [name for name in evaluator.baselines if name != "eager"]
    width = max([len("task"), *(len(task.id) for task in tasks)])
    print("  ".join(["task".ljust(width), "eager ms", *(name.rjust(_CELL_CHARACTERS) for name in names)]), flush=True)
    measured = absent = 0
    for task in tasks:
        results = {name: _result(evaluator, task, name) for name in names}
        cells = [_cell(one).rjust(max(len(name), _CELL_CHARACTERS)) for name, one in results.items()]
        seconds = next((one.eager_seconds for one in results.values() if one.eager_seconds), None)
        eager = f"{1e3 * seconds:.3f}" if seconds else "-"
        print("  ".join([task.id.ljust(width), eager.rjust(len("eager ms")), *cells]), flush=True)
        for name, one in results.items():
            if one.speedup is None:
                print(f"  {name}: {' '.join(one.reason.split())[:_REASON_CHARACTERS]}", flush=True)
                absent += 1
            else:
                measured += 1
    return Filled(len(tasks), measured, absent)


def _result(evaluator: Evaluator, task: Task, name: str) -> BaselineResult:
    try:
        return evaluator.baseline(task, name)
    except _FAILURES as error:
        return BaselineResult(None, f"not measured: {error}")


def _cell(result: BaselineResult) -> str:
    return f"{result.speedup.value:.3f}x" if result.speedup else "-"
