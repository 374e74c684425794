"""Reads tasks from Parquet files in the format of KernelBench's data set: `code`, `level`, `name`, `problem_id`.

Reads and checks text only. No part of a task is executed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evaluators.records import Task
from evaluators.tasks.records import TaskError, checked

COLUMNS = ("code", "level", "name", "problem_id")
_SPLIT = re.compile(r"level_(\d+)(?!\d)")
_NUMBERED = re.compile(r"\d+_(.*)")


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files in a folder and in those below it, by path."""
    return sorted(folder.glob("**/*.parquet"))


def load_parquet(paths: Sequence[Path]) -> list[Task]:
    """The tasks of these files.

    Their ids are those of the same tasks in a checkout: `level1/23` of level 1 and problem 23. A file without the
    column `level` has its level in its name, as that of a split has (`level_1-00000-of-00001.parquet`). Raises
    TaskError, which names file and row, also for a problem that is there twice.
    """
    places: dict[str, str] = {}
    tasks = []
    for path in paths:
        for number, row in enumerate(_rows(path), start=1):
            place = f"{path}, row {number}"
            task = _task(row, path, place)
            if task.id in places:
                raise TaskError(f"{place}: {task.id} is in {places[task.id]}, too; leave one of them out")
            places[task.id] = place
            tasks.append(checked(task, place))
    return tasks


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        file = pq.ParquetFile(path)
        names = file.schema_arrow.names
        needed = [name for name in COLUMNS if name != "level" or not _SPLIT.search(path.name)]
        if missing := [name for name in needed if name not in names]:
            raise TaskError(
                f"{path}: has no column {missing[0]}; KernelBench's data set has {', '.join(COLUMNS)}, this file has "
                f"{', '.join(names)}"
            )
        yield from file.read([name for name in COLUMNS if name in names]).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise TaskError(f"{path}: cannot be read as Parquet ({error})") from error


def _task(row: Mapping[str, Any], path: Path, place: str) -> Task:
    split = _SPLIT.search(path.name)
    try:
        level, number = int(row["level"] if "level" in row or split is None else split[1]), int(row["problem_id"])
        name, source = str(row["name"]), row["code"]
        if not isinstance(source, str):
            raise TypeError("code is no text")
    except (ValueError, TypeError) as error:
        raise TaskError(f"{place}: level and problem_id must be whole numbers, code a text ({error})") from error
    return Task(f"level{level}/{number}", level, _plain_name(name), source)


def _plain_name(name: str) -> str:
    """The name that the same task has in a checkout: without number, suffix and underscores at its ends."""
    stem = name.removesuffix(".py")
    numbered = _NUMBERED.fullmatch(stem)
    return (numbered[1] if numbered else stem).strip("_")
