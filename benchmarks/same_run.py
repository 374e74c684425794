"""Whether two versions of the code make the same run of one configuration: prompts, samples and losses, step by step.

    python -m benchmarks.same_run runs/before runs/after

Prints a row for each phase (`--steps`: for each step) and the first difference, in the order in which the first run
made its steps. Ends with exit code 1 if anything differs beyond exact equality, except what measures time,
utilisation, or how many programs had to be measured, since no program of a run is measured twice. Reads the Parquet
files of any version of the run directory, and not its configuration. Needs no GPU.

Verdicts have to come from one recording (`evaluator.verdicts_of`), since two measurements are never equal.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table

PROMPT = ("task_id", "group", "prompt", "prompt_ids")
RESPONSE = ("response", "response_ids", "finish_reason")
_ALWAYS = ("prompt_ids", "response_ids", "logprobs", "reward", "advantage", "candidate_digest", "outcome")
_OF_TIME = re.compile(r"(^|[/_])seconds$|_per_second$|^utilisation/|^measured$|^remeasured")
_LOSSES = "train/"
_SHOWN_CHARACTERS = 40

_KEYS = (("task_id", "prompt_ids"), ("task_id", "prompt_ids", "response_ids"))  # that name a prompt, and a rollout

Step = tuple[str, int]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class StepRecord:
    """A step of one run: its rollouts in the order in which they are stored, and its metrics by name. `time` is when
    the step was committed, in seconds since 1970 (infinity if it has no metrics)."""

    rollouts: Sequence[Row]
    metrics: Mapping[str, float]
    time: float


@dataclass(frozen=True)
class Comparison:
    """One step of two runs. The largest differences are absolute; infinity if a value exists in one run alone.
    `differences` are sentences, the first in the order of a step first; empty for identical steps."""

    phase: str
    step: int
    rollouts: int
    identical_prompts: int
    identical_responses: int
    logprob: float
    reward: float
    loss: float
    differences: tuple[str, ...]


def read_steps(run: Path) -> dict[Step, StepRecord]:
    """The steps of a run directory, in the order of their commits. Raises FileNotFoundError if it has none."""
    samples, metrics = _read_files(run, "samples"), _read_files(run, "metrics")
    if not samples and not metrics:
        raise FileNotFoundError(f"{run}: neither samples/ nor metrics/ of any step; give a run directory")
    steps = {}
    for key in samples.keys() | metrics.keys():
        rows = metrics.get(key, [])
        time = min((row["time"] for row in rows), default=float("inf"))
        values = {row["name"]: row["value"] for row in rows if not _OF_TIME.search(row["name"])}
        steps[key] = StepRecord(samples.get(key, []), values, time)
    return dict(sorted(steps.items(), key=lambda item: (item[1].time, item[0])))


def _read_files(run: Path, kind: str) -> dict[Step, list[dict[str, Any]]]:
    """The rows of each step's file of one kind."""
    files = {}
    for path in run.glob(f"{kind}/phase=*/step=*/{kind}.parquet"):
        phase, step = (folder.name.partition("=")[2] for folder in (path.parent.parent, path.parent))
        # A reader of the file alone: a data set would add columns for the folders' names.
        files[unquote(phase), int(step)] = pq.ParquetFile(path).read().to_pylist()
    return files


def compare_runs(run: Mapping[Step, StepRecord], other: Mapping[Step, StepRecord]) -> list[Comparison]:
    """The comparisons of all steps: those of the first run in its order, then those that the other run has alone."""
    comparisons = []
    for key in [*run, *(key for key in other if key not in run)]:
        if key in run and key in other:
            comparisons.append(_compare_step(key, run[key], other[key]))
        else:
            record = run.get(key) or other[key]
            inf, count = float("inf"), len(record.rollouts)
            sentence = f"only the {'first' if key in run else 'second'} run has this step"
            comparisons.append(Comparison(*key, count, 0, 0, inf, inf, inf, (sentence,)))
    return comparisons


def _compare_step(key: Step, first: StepRecord, second: StepRecord) -> Comparison:
    pairs, is_reordered = _pair(first.rollouts, second.rollouts)
    differences = []
    if len(first.rollouts) != len(second.rollouts):
        differences.append(f"{len(first.rollouts)} and {len(second.rollouts)} rollouts")
    columns = _common_columns(pairs)
    positions = {id(row): index for index, row in enumerate(first.rollouts)}
    for row, other in pairs:
        differences += [
            f"rollout {positions[id(row)]} of {row['task_id']}, {name}{_place_and_values(row[name], other[name])}"
            for name in columns
            if not _same(row[name], other[name])
        ]
    names = [*first.metrics, *(name for name in second.metrics if name not in first.metrics)]
    values = {name: (first.metrics.get(name), second.metrics.get(name)) for name in names}
    differences += [f"metric {name}{_place_and_values(*pair)}" for name, pair in values.items() if not _same(*pair)]
    if is_reordered:
        differences.append("the rollouts are stored in another order")
    return Comparison(
        *key,
        rollouts=max(len(first.rollouts), len(second.rollouts)),
        identical_prompts=_count_identical(pairs, PROMPT),
        identical_responses=_count_identical(pairs, RESPONSE),
        logprob=_largest(zip(row["logprobs"], other["logprobs"], strict=False) for row, other in pairs),
        reward=_largest([(row["reward"], other["reward"])] for row, other in pairs),
        loss=_largest([pair] for name, pair in values.items() if name.startswith(_LOSSES)),
        differences=tuple(differences),
    )


def _pair(first: Sequence[Row], second: Sequence[Row]) -> tuple[list[tuple[Row, Row]], bool]:
    """The rollouts of two runs in pairs, and whether they had to be sorted for it. Earlier versions stored rollouts as
    they came back, so two runs may store the same rollouts, or responses to the same prompts, in another order."""
    prompts, rollouts = ([[_key(row, names) for row in rows] for rows in (first, second)] for names in _KEYS)
    for left, right in (rollouts, prompts):
        if left == right:
            break
        if sorted(left) == sorted(right):
            ordered = (sorted(rows, key=lambda row: _key(row, _KEYS[1])) for rows in (first, second))
            return list(zip(*ordered, strict=True)), True
    return list(zip(first, second, strict=False)), False


def _key(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _common_columns(pairs: Sequence[tuple[Row, Row]]) -> list[str]:
    """The columns to compare, in the order of a step: prompt, response, and what became of it. A column that only one
    version of the code writes says nothing about the run."""
    if not pairs:
        return []
    row, other = pairs[0]
    common = [name for name in row if name in other or name in _ALWAYS]
    return [name for name in (*PROMPT, *RESPONSE) if name in common] + [
        name for name in common if name not in PROMPT + RESPONSE
    ]


def _count_identical(pairs: Iterable[tuple[Row, Row]], names: Sequence[str]) -> int:
    return sum(all(row.get(name) == other.get(name) for name in names) for row, other in pairs)


def _same(first: Any, second: Any) -> bool:
    """Exact equality, but NaN equals NaN."""
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    return first == second or (first != first and second != second)


def _largest(groups: Iterable[Iterable[tuple[float | None, float | None]]]) -> float:
    return max((_gap(*pair) for group in groups for pair in group), default=0.0)


def _gap(first: float | None, second: float | None) -> float:
    if _same(first, second):
        return 0.0
    gap = float("inf") if first is None or second is None else abs(first - second)
    return gap if gap == gap else float("inf")


def _place_and_values(first: Any, second: Any) -> str:
    """The two values; of lists, and of texts, the first place where they differ."""
    if isinstance(first, list | str) and isinstance(second, type(first)):
        length = min(len(first), len(second))
        place = next((index for index in range(length) if not _same(first[index], second[index])), length)
        unit = "character" if isinstance(first, str) else "entry"
        ends = (slice(place, place + _SHOWN_CHARACTERS) if isinstance(first, str) else slice(place, place + 1),) * 2
        shown = [repr(value[end]) for value, end in zip((first, second), ends, strict=True)]
        return f" from {unit} {place} on: {shown[0]} and {shown[1]}"
    return f": {first!r} and {second!r}"


def table_of(comparisons: Sequence[Comparison], *, by_step: bool = False) -> Table:
    """A row for each phase, or for each step."""
    head = ("phase", "steps", "rollouts", "identical prompts", "identical responses", "log-probabilities", "rewards")
    table = Table(*head, "losses", "identical", box=box.SIMPLE_HEAD, pad_edge=False)
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for comparison in comparisons:
        groups.setdefault((comparison.phase, f"{comparison.step}" if by_step else ""), []).append(comparison)
    for (phase, step), steps in groups.items():
        counts = [
            sum(getattr(comparison, name) for comparison in steps)
            for name in ("rollouts", "identical_prompts", "identical_responses")
        ]
        gaps = [max(getattr(comparison, name) for comparison in steps) for name in ("logprob", "reward", "loss")]
        table.add_row(
            phase,
            step or str(len(steps)),
            *map(str, counts),
            *(f"{gap:.3g}" for gap in gaps),
            "no" if any(comparison.differences for comparison in steps) else "yes",
        )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the comparison; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run directory of one version")
    parser.add_argument("other", type=Path, help="run directory of the other version")
    parser.add_argument("--steps", action="store_true", help="a row for each step")
    options = parser.parse_args(arguments)
    try:
        comparisons = compare_runs(read_steps(options.run), read_steps(options.other))
    except OSError as error:
        parser.error(str(error))
    console = Console(width=150, highlight=False)
    console.print(table_of(comparisons, by_step=options.steps))
    different = [comparison for comparison in comparisons if comparison.differences]
    if not different:
        console.print("The runs are identical: prompts, samples, losses and all metrics that measure no time.")
        return 0
    first = different[0]
    console.print(f"{len(different)} of {len(comparisons)} steps differ. The first difference:")
    console.print(f"{first.phase} step {first.step}: {first.differences[0]}", markup=False, soft_wrap=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
