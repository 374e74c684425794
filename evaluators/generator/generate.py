"""Generates a list of tasks: drawn, told apart by structure, audited, with fast variants by rules."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evaluators.generator.draw import DrawnTask
from evaluators.generator.examine import Draw, Workers
from evaluators.generator.rules import variants_of
from evaluators.records import Task

FIRST_NUMBER = 10_001  # of each level, unless asked otherwise: no list of KernelBench's has such numbers
SIZES_OF_A_STRUCTURE = 3
_ROUND = 256  # draws at most; how many makes no difference to what is accepted


class GenerateError(ValueError):
    """Tasks cannot be generated as asked. One line that names the remedy."""


@dataclass
class Generated:
    """The accepted tasks, each with its digest; how many draws were dropped, by reason; and of each keep-out source
    how many tasks it has and how many of them could be traced."""

    tasks: list[tuple[DrawnTask, str]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    kept_out: dict[str, tuple[int, int]] = field(default_factory=dict)
    draws: int = 0


def generate(
    number: int,
    seed: int,
    keep_out: Mapping[str, Sequence[Task]],
    *,
    jobs: int = 1,
    progress: Callable[[Generated], None] = lambda result: None,
) -> Generated:
    """Draws until `number` tasks are accepted. The same seed and keep-out lists give the same tasks, and a smaller
    number the first of them.

    `keep_out`: tasks by the name of their source; no task with the structure of one of them is accepted. Raises
    GenerateError if almost all draws are dropped. `progress` is called after each round of draws.
    """
    result, workers = Generated(), Workers(jobs)
    try:
        known: dict[str, str] = {}
        for name, tasks in keep_out.items():
            digests = list(workers.digest(tasks))
            result.kept_out[name] = (len(tasks), sum(bool(digest) for digest in digests))
            known |= {digest: name for digest in digests if digest and digest not in known}
        seen: Counter[str] = Counter()
        layouts: set[tuple[str, str]] = set()
        while len(result.tasks) < number:
            if result.draws > 100 * _ROUND + 20 * number:
                raise GenerateError(f"{result.draws} draws gave only {len(result.tasks)} tasks; ask for fewer")
            missing = number - len(result.tasks)
            draws = range(result.draws, result.draws + min(_ROUND, missing + missing // 8 + 1))
            candidates = _told_apart(workers.draw(seed, draws), result, known, seen, layouts)
            result.draws = draws.stop
            for candidate, reason in zip(candidates, workers.audit([task for task, _ in candidates]), strict=True):
                if reason:
                    result.dropped[f"audit: {reason}"] += 1
                elif len(result.tasks) < number:
                    result.tasks.append(candidate)
            progress(result)
    finally:
        workers.close()
    return result


def _told_apart(
    draws: Iterable[Draw],
    result: Generated,
    known: Mapping[str, str],
    seen: Counter[str],
    layouts: set[tuple[str, str]],
) -> list[tuple[DrawnTask, str]]:
    """One round of draws without those whose structure is known, or was drawn often enough."""
    chosen = []
    for draw in draws:
        if draw.task is None:
            result.dropped[draw.reason] += 1
        elif draw.digest in known:
            result.dropped[f"structure of a task of {known[draw.digest]}"] += 1
        elif seen[draw.digest] >= SIZES_OF_A_STRUCTURE:
            result.dropped[f"more than {SIZES_OF_A_STRUCTURE} of one structure"] += 1
        elif (draw.digest, draw.task.layout) in layouts:
            result.dropped["same structure, dtype, layout and size class"] += 1
        else:
            seen[draw.digest] += 1
            layouts.add((draw.digest, draw.task.layout))
            chosen.append((draw.task, draw.digest))
    return chosen


def rows_of(generated: Generated, first: int = FIRST_NUMBER) -> Iterator[dict[str, Any]]:
    """The lines of the file, as objects (docs/guides/tasks.md). `first`: the number of the first task of each level."""
    numbers = dict.fromkeys((1, 2, 3), first)
    for drawn, digest in generated.tasks:
        level = drawn.task.level
        yield {
            "level_id": level,
            "task_id": numbers[level],
            "name": drawn.task.name,
            "ref_code": drawn.task.source,
            "tags": list(drawn.task.tags),
            "profiles": drawn.profiles,
            "family": drawn.family,
            "structure": digest,
            "variants": [variant.to_row() for variant in variants_of(drawn.drawn)],
        }
        numbers[level] += 1


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Writes JSON Lines, whole or not at all. Raises OSError."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    partial.replace(path)
