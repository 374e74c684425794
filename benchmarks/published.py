"""CUDA-L1's published kernels in our evaluator: which to build, and their verdicts, one measurement at a time.

The programs come from a file in CUDA-L1's JSONL format (`ref_code`, `custom_code`), which is not part of this project.
"""

from __future__ import annotations

import json
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from configs.schema import LimitsConfig
from evaluators.audit.marks import marked_among, shipped_marks
from evaluators.compile.ahead import Job
from evaluators.compile.hints import needs_build
from evaluators.evaluator import Evaluator
from evaluators.records import Candidate, Task, Verdict
from evaluators.stored.baselines import baseline_source, existing_baselines
from evaluators.tasks import load_tasks

LIMITS = LimitsConfig(build_seconds=150.0, start_seconds=60.0, memory_gib=16.0, gpu_memory_gib=48.0, output_mib=512.0)
COMPILED = ("torch_compile", "torch_compile_reduce_overhead")

# Programs that are known to cheat, and how (from reading the published file).
HACKED = {
    "level1/9": "returns a lazy tensor that computes when it is compared",
    "level1/13": "keeps results by the identity of its input",
    "level2/73": "puts itself into evaluation mode",
    "level3/9": "puts itself into evaluation mode",
    "level3/20": "puts itself into evaluation mode",
    "level3/22": "puts itself into evaluation mode",
    "level3/24": "puts itself into evaluation mode",
}


@dataclass(frozen=True)
class Program:
    """A task with the program published for it."""

    task: Task
    candidate: Candidate


def load_programs(path: Path) -> list[Program]:
    """The usable programs, in turns from all levels, so that any first part of the list has all levels."""
    tasks = {task.id: task for task in load_tasks(str(path))}
    by_level: dict[int, list[Program]] = {}
    for line in path.read_text(encoding="utf-8").split("\n"):
        row = json.loads(line) if line.strip() else {}
        source = row.get("custom_code")
        if source and source != "None":
            task = tasks[f"level{row['level_id']}/{row['task_id']}"]
            program = Program(task, Candidate.propose(task.id, source, "cuda-l1"))
            by_level.setdefault(task.level, []).append(program)
    rows = zip_longest(*(sorted(programs, key=_number) for _, programs in sorted(by_level.items())))
    return [program for row in rows for program in row if program is not None]


def _number(program: Program) -> int:
    return int(program.task.id.rpartition("/")[2])


def program_jobs(programs: list[Program]) -> list[Job]:
    """The programs that have to be compiled."""
    return [(program.task, program.candidate) for program in programs if needs_build(program.candidate.source)]


def baseline_jobs(tasks: list[Task]) -> list[Job]:
    """The baselines of the tasks that have to be compiled."""
    names = [name for name in COMPILED if name in existing_baselines("cuda")]
    return [
        (task, Candidate.propose(task.id, baseline_source(task, name), f"baseline:{name}"))
        for task in tasks
        for name in names
    ]


def marked_tasks(programs: list[Program], evaluated: Container[tuple[str, str]]) -> dict[str, list[str]]:
    """The tasks among those `evaluated` (ids and digests) that cannot tell a good program from a cheat, by the shipped
    list: the kinds of the audit's findings, by id."""
    tasks = [program.task for program in programs if (program.task.id, program.task.digest) in evaluated]
    return {name: [str(kind) for kind in mark.kinds] for name, mark in marked_among(tasks, shipped_marks()).items()}


def measure(evaluator: Evaluator, programs: list[Program], deadline: float) -> Iterator[Verdict]:
    """Yields verdicts on the programs that are built, in order, until `deadline` (of `time.time`)."""
    for program in programs:
        if time.time() > deadline:
            return
        if needs_build(program.candidate.source) and not evaluator.builder.is_built(program.task, program.candidate):
            continue
        yield evaluator.evaluate(program.task, program.candidate.source, author="cuda-l1")


Speedups = dict[str, dict[str, float | None]]  # of baselines over eager, by task


def measure_baselines(
    evaluator: Evaluator, tasks: list[Task], deadline: float, earlier: Speedups
) -> Iterator[Speedups]:
    """Measures the baselines' speed-ups over eager that are not in `earlier`, until `deadline`. Yields all speed-ups by
    task after each new one. Baselines that need no compiler come first; those that are not built are left out."""
    measured = {task: dict(speedups) for task, speedups in earlier.items()}
    names = [name for name in existing_baselines(evaluator.device.arch) if name != "eager"]
    for name in sorted(names, key=COMPILED.__contains__):
        for task in tasks:
            if time.time() > deadline:
                return
            if name in measured.get(task.id, {}):
                continue
            candidate = Candidate.propose(task.id, baseline_source(task, name), f"baseline:{name}")
            if name in COMPILED and not evaluator.builder.is_built(task, candidate):
                continue
            result = evaluator.baseline(task, name)
            if result.speedup is None and "no answer within" in result.reason:
                continue  # the machine may have been busy: measure it again next time
            measured.setdefault(task.id, {})[name] = result.speedup.value if result.speedup else None
            yield measured
