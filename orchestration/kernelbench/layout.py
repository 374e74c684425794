"""The layout of KernelBench's runs: `runs/NAME/level_1_problem_23_sample_0_kernel.py`, ..., and `eval_results.json`.

`eval_results.json` maps a problem's number to the results of its samples, so a run has one level. Times are in
milliseconds, -1 without one. Files of earlier versions have one result a problem, not a list.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluators.tasks.lines import numbered_rows

RESULTS = "eval_results.json"
NO_TIME = -1.0
"""The run time of a program without one."""
_KERNEL = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_NUMBERED = re.compile(r"level(\d+)/(\d+)")


class LayoutError(Exception):
    """A folder or file is not in KernelBench's layout. The message is one line."""


@dataclass(frozen=True, order=True)
class Problem:
    """A problem of a level, both by number."""

    level: int
    number: int

    @classmethod
    def of_task(cls, task_id: str) -> Problem | None:
        """The problem that is a task; None for a task without a number, as the bundled ones."""
        match = _NUMBERED.fullmatch(task_id)
        return cls(int(match[1]), int(match[2])) if match else None

    @property
    def task_id(self) -> str:
        """The id of the task that it is."""
        return f"level{self.level}/{self.number}"

    def kernel_name(self, sample: int) -> str:
        """The file of a sample's program."""
        return f"level_{self.level}_problem_{self.number}_sample_{sample}_kernel.py"


@dataclass(frozen=True)
class Result:
    """What KernelBench found of a sample. `milliseconds`: a call's run time, None without one."""

    compiled: bool
    correct: bool
    milliseconds: float | None = None
    hardware: str = ""

    @property
    def words(self) -> str:
        """The same in a few words: `right, 0.25 ms`."""
        if not self.correct:
            return "wrong" if self.compiled else "not compiled"
        return f"right, {self.milliseconds:.3g} ms" if self.milliseconds else "right"


@dataclass(frozen=True)
class Sample:
    """A program of a run. `result`: KernelBench's own, None if there is none."""

    problem: Problem
    sample: int
    source: str
    result: Result | None = None


def read_run(folder: Path) -> list[Sample]:
    """The programs of a run's folder with KernelBench's results, by level, problem and sample. Raises LayoutError."""
    try:
        found = [(match, path) for path in folder.iterdir() if (match := _KERNEL.fullmatch(path.name))]
    except OSError as error:
        raise LayoutError(f"{folder}: cannot be read ({error})") from error
    if not found:
        raise LayoutError(f"{folder}: holds no program (expected level_1_problem_1_sample_0_kernel.py, ...)")
    samples = []
    for match, path in found:
        level, number, sample = map(int, match.groups())
        try:
            samples.append(Sample(Problem(level, number), sample, path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise LayoutError(f"{path}: cannot be read ({error})") from error
    results = read_results(folder / RESULTS) if (folder / RESULTS).is_file() else {}
    has_one_level = len({each.problem.level for each in samples}) == 1
    return [
        Sample(
            each.problem,
            each.sample,
            each.source,
            # Numbers alone say nothing about a problem if there are several levels.
            results.get((each.problem.number, each.sample)) if has_one_level else None,
        )
        for each in sorted(samples, key=lambda each: (each.problem, each.sample))
    ]


def read_results(path: Path) -> dict[tuple[int, int], Result]:
    """KernelBench's results, by problem and sample. Raises LayoutError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {
            (int(number), int(row.get("sample_id", 0))): _result(row)
            for number, rows in content.items()
            for row in (rows if isinstance(rows, list) else [rows])
        }
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise LayoutError(f"{path}: not KernelBench's results by problem ({error!r})") from error


def _result(row: Mapping[str, Any]) -> Result:
    time = row.get("runtime")
    about = row.get("metadata")
    return Result(
        bool(row["compiled"]),
        bool(row["correctness"]),
        float(time) if isinstance(time, int | float) and 0 < time < math.inf else None,
        str(about.get("hardware", "")) if isinstance(about, dict) else "",
    )


def read_published(path: Path) -> list[Sample]:
    """The programs of a JSON Lines file as CUDA-L1's authors published theirs: `level_id`, `task_id`, `custom_code`. A
    line without a program is left out. Raises LayoutError, and TaskError for a line that is no JSON.
    Both name the line."""
    expected = "level_id, task_id and custom_code"
    samples, seen = [], dict[Problem, int]()
    for number, row in numbered_rows(path, expected):
        try:
            problem, source = Problem(int(row["level_id"]), int(row["task_id"])), row.get("custom_code")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LayoutError(f"{path}:{number}: expected {expected} ({error!r})") from error
        if isinstance(source, str) and source.strip() not in ("", "None"):
            seen[problem] = seen.get(problem, -1) + 1
            samples.append(Sample(problem, seen[problem], source))
    if not samples:
        raise LayoutError(f"{path}: holds no program (expected lines with custom_code)")
    return sorted(samples, key=lambda each: (each.problem, each.sample))
