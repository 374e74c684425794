"""Reads tasks: the bundled ones, KernelBench's folder layout or data set, CUDA-L1's JSONL, or one file.

Reads and checks text only. No part of a task is executed here.
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from evaluators.records import Task
from evaluators.tasks import hub
from evaluators.tasks.lines import load_line_variants, load_lines
from evaluators.tasks.parquet import load_parquet, parquet_files
from evaluators.tasks.records import TaskError, Variant, checked

BUNDLED = Path(__file__).parent / "bundled"


def load_tasks(source: str = "bundled", profile: str = "source") -> list[Task]:
    """The tasks of one or several sources, sorted by level and number.

    `source`: `bundled`, a folder in KernelBench's layout (`level1/1_Name.py`), a JSONL file with `level_id`, `task_id`,
    `ref_code`, a Parquet file of KernelBench's data set or a folder of them, or the data set's name on the hub
    (`hf://datasets/OWNER/NAME`); several of these are separated by commas. `profile` (`cpu`, `cuda`) names the sizes of
    tasks that have them by profile: the bundled ones, and lines with `profiles`. Other tasks keep their own. Raises
    TaskError, also for an id that two sources have.
    """
    names = _names_of(source)
    sources: dict[str, str] = {}  # of each task's id
    tasks: list[Task] = []
    for name in names:
        loaded = load_bundled(profile) if name == "bundled" else _load_path(name, profile)
        for task in loaded:
            if sources.setdefault(task.id, name) != name:
                raise TaskError(f"{name}: {task.id} is a task of {sources[task.id]}, too; leave one of the sources out")
        tasks += loaded
    return sorted(tasks, key=lambda task: (task.level, _number(task.id), task.id))


def _names_of(source: str) -> list[str]:
    """The sources that a list of them names."""
    return [source] if Path(source).exists() else [name.strip() for name in source.split(",")]


def _load_path(source: str, profile: str) -> list[Task]:
    path = hub.fetch_dataset(source) if source.startswith(hub.PREFIX) else Path(source)
    if path.is_dir():
        tasks = _load_folder(path) or load_parquet(parquet_files(path))
    elif path.suffix == ".parquet" and path.is_file():
        tasks = load_parquet([path])
    elif path.suffix == ".jsonl" and path.is_file():
        tasks = load_lines(path, profile)
    elif path.is_file():
        tasks = [_load_file(path)]
    else:
        hint = (
            f"; is it a data set on the hub? hf://datasets/{source}" if re.fullmatch(r"[\w.-]+/[\w.-]+", source) else ""
        )
        raise TaskError(
            f"{source}: no such file or folder (use `bundled`, a KernelBench folder, a .jsonl or a .parquet file{hint})"
        )
    if not tasks:
        raise TaskError(f"{source}: holds no tasks (expected level1/1_Name.py, ..., lines with ref_code, or Parquet)")
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


class TaskVariants:
    """The programs that come with the tasks of one or several sources, for one device."""

    def __init__(self, source: str = "bundled", profile: str = "") -> None:
        """`source`: as of `load_tasks`. `profile`: `cpu` or `cuda`; programs for all devices if it is empty. Raises
        TaskError."""
        self._profile = profile
        self._of_lines: dict[str, list[Variant]] = {}
        for name in _names_of(source):
            if Path(name).suffix == ".jsonl" and Path(name).is_file():
                self._of_lines |= load_line_variants(Path(name))

    def of(self, task_id: str) -> list[Variant]:
        """The programs of a task, in the order of their file, or by name."""
        found = self._of_lines[task_id] if task_id in self._of_lines else load_variants(task_id)
        return [each for each in found if not each.profiles or not self._profile or self._profile in each.profiles]


def _number(task_id: str) -> int:
    match = re.search(r"/(\d+)", task_id)
    return int(match.group(1)) if match else 0


def _load_file(path: Path) -> Task:
    level = re.fullmatch(r"level(\d+)", path.resolve().parent.name)
    match = re.fullmatch(r"(\d+)_(.*)", path.stem)
    number, name = (match.group(1), match.group(2)) if match else (path.stem, path.stem)
    identity = f"level{level.group(1)}/{number}" if level else f"file/{path.stem}"
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: cannot be read ({error})") from error
    return checked(Task(identity, int(level.group(1)) if level else 0, name.strip("_"), source), str(path))


def _load_folder(folder: Path) -> list[Task]:
    """`folder` may also be that of one level."""
    paths = [path for path in sorted(folder.glob("**/*.py")) if path.stem[0].isdigit()]
    return [_load_file(path) for path in paths if re.fullmatch(r"level\d+", path.resolve().parent.name)]
