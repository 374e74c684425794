"""Reads tasks: the bundled ones, KernelBench's folder layout, CUDA-L1's JSONL, or one file.

Reads and checks text only. No part of a task is executed here.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from evaluators.records import Task
from evaluators.syntax import parse_source

BUNDLED = Path(__file__).parent / "bundled"
_REQUIRED = {"Model", "get_inputs", "get_init_inputs"}


class TaskError(Exception):
    """A task cannot be read. The message is one line that names the task and the remedy."""


@dataclass(frozen=True)
class Variant:
    """A program that ships with a bundled task. `expect`: `faster`, `same`, `slower` or `wrong`. `analysis` and
    `design`: the sentences that a teacher would write about it."""

    task_id: str
    name: str
    expect: str
    analysis: str
    design: str
    source: str


def load_tasks(source: str = "bundled", profile: str = "source") -> list[Task]:
    """The tasks of one or several sources, sorted by level and number.

    `source`: `bundled`, a folder in KernelBench's layout (`level1/1_Name.py`), or a JSONL file with `level_id`,
    `task_id`, `ref_code`; several of these are separated by commas. `profile` names the sizes of the bundled tasks
    (`cpu`, `cuda`); other tasks keep their own. Raises TaskError, also for an id that two sources have.
    """
    names = [source] if Path(source).exists() else [name.strip() for name in source.split(",")]
    sources: dict[str, str] = {}  # of each task's id
    tasks: list[Task] = []
    for name in names:
        loaded = load_bundled(profile) if name == "bundled" else _load_path(name)
        for task in loaded:
            if sources.setdefault(task.id, name) != name:
                raise TaskError(f"{name}: {task.id} is a task of {sources[task.id]}, too; leave one of the sources out")
        tasks += loaded
    return sorted(tasks, key=lambda task: (task.level, _number(task.id), task.id))


def _load_path(source: str) -> list[Task]:
    path = Path(source)
    if path.is_dir():
        tasks = _load_folder(path)
    elif path.suffix == ".jsonl" and path.is_file():
        tasks = _load_jsonl(path)
    elif path.is_file():
        tasks = [_load_file(path)]
    else:
        raise TaskError(f"{source}: no such file or folder (use `bundled`, a KernelBench folder or a .jsonl file)")
    if not tasks:
        raise TaskError(f"{source}: holds no tasks (expected level1/1_Name.py, ... or lines with ref_code)")
    return tasks


def find_task(name: str, profile: str = "cpu") -> Task:
    """A bundled task by its id (`level1/gelu`) or name (`gelu`), or the task in a file. Raises TaskError."""
    if Path(name).is_file():
        return _load_file(Path(name))
    tasks = load_bundled(profile)
    matches = [task for task in tasks if name in (task.id, task.name)]
    if len(matches) == 1:
        return matches[0]
    raise TaskError(f"{name}: neither a file nor a bundled task (`warpsmith tasks` lists them)")


def profile_of(arch: str) -> str:
    """The device profile of an architecture: `cpu`, or `cuda` for every GPU."""
    return "cpu" if arch == "cpu" else "cuda"


def load_bundled(profile: str = "source") -> list[Task]:
    """The tasks that ship with Warpsmith, at the sizes of a device profile, or of their `source`. Raises TaskError."""
    tasks = []
    for reference in sorted(BUNDLED.glob("level*/*/reference.py")):
        folder = reference.parent
        sheet = yaml.safe_load((folder / "sizes.yaml").read_text())
        if profile != "source" and profile not in sheet["profiles"]:
            raise TaskError(f"{folder.name}: sizes.yaml has no profile `{profile}`, only {sorted(sheet['profiles'])}")
        tasks.append(
            Task(
                id=f"{folder.parent.name}/{folder.name}",
                level=int(folder.parent.name.removeprefix("level")),
                name=folder.name,
                source=reference.read_text(),
                tags=tuple(sheet.get("tags", ())),
                sizes=sheet["profiles"][profile] if profile != "source" else {},
            )
        )
    return tasks


def load_variants(task_id: str) -> list[Variant]:
    """The programs that ship with a bundled task, by name."""
    variants = []
    for path in sorted((BUNDLED / task_id / "variants").glob("*.py")):
        lines = path.read_text().splitlines(keepends=True)
        header = {
            name.removeprefix("# "): text.strip() for name, _, text in (line.partition(":") for line in lines[:3])
        }
        source = "".join(lines[3:]).lstrip("\n")
        variants.append(Variant(task_id, path.stem, header["expect"], header["analysis"], header["design"], source))
    return variants


def _number(task_id: str) -> int:
    match = re.search(r"/(\d+)", task_id)
    return int(match.group(1)) if match else 0


def _checked(task: Task, place: str) -> Task:
    """The task itself. Raises TaskError, which names the `place` of its text, if it is not in KernelBench's format."""
    try:
        body = parse_source(task.source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TaskError(f"{place}: does not parse ({error})") from error
    defined = {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    if missing := _REQUIRED - defined:
        raise TaskError(f"{place}: not in KernelBench's format, {', '.join(sorted(missing))} missing")
    return task


def _load_file(path: Path) -> Task:
    level = re.fullmatch(r"level(\d+)", path.resolve().parent.name)
    match = re.fullmatch(r"(\d+)_(.*)", path.stem)
    number, name = (match.group(1), match.group(2)) if match else (path.stem, path.stem)
    identity = f"level{level.group(1)}/{number}" if level else f"file/{path.stem}"
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: cannot be read ({error})") from error
    return _checked(Task(identity, int(level.group(1)) if level else 0, name.strip("_"), source), str(path))


def _load_folder(folder: Path) -> list[Task]:
    """`folder` may also be that of one level."""
    paths = [path for path in sorted(folder.glob("**/*.py")) if path.stem[0].isdigit()]
    return [_load_file(path) for path in paths if re.fullmatch(r"level\d+", path.resolve().parent.name)]


def _load_jsonl(path: Path) -> list[Task]:
    tasks = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # splitlines() also splits inside JSON strings
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: cannot be read ({error})") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row: dict[str, Any] = json.loads(line)
            level, index, source = int(row["level_id"]), int(row["task_id"]), str(row["ref_code"])
        except (ValueError, KeyError, TypeError) as error:
            raise TaskError(f"{path}:{number}: expected level_id, task_id and ref_code ({error!r})") from error
        name = str(row.get("name") or f"{level}-{index}")
        tasks.append(_checked(Task(f"level{level}/{index}", level, name, source), f"{path}:{number}"))
    return tasks
