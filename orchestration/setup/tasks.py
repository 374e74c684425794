"""The tasks of a run: those that its config names, less the marked ones, some of them held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from configs.schema import HeldOutConfig, TasksConfig
from evaluators.audit.marks import Mark, MarkError, marked_among, read_marks, shipped_marks
from evaluators.records import Task, digest_of
from evaluators.tasks import TaskError, load_tasks


def select_tasks(config: TasksConfig) -> list[Task]:
    """The tasks that a config names, marked ones too. Raises TaskError where it names none, or an unknown one."""
    tasks = load_tasks(config.source, config.profile)
    included = named_by(config.include or ["*"], tasks, "tasks.include", config.source)
    chosen = [task for task in tasks if task.level in config.levels and task.id in included]
    if not chosen:
        raise TaskError(f"tasks: none of the {len(tasks)} tasks of {config.source} is of levels {config.levels}")
    return chosen


def named_by(names: Sequence[str], tasks: Sequence[Task], key: str, place: str) -> set[str]:
    """The ids among the tasks that names mean: ids, or patterns as in a shell. Raises TaskError for one that means
    none, with the config's `key` and the `place` that it should be in."""
    found: set[str] = set()
    for name in names:
        matches = {task.id for task in tasks if fnmatchcase(task.id, name)}
        if not matches:
            raise TaskError(f"{key}: {name} is not among the tasks of {place}")
        found |= matches
    return found


def draw_held_out(tasks: Sequence[Task], config: HeldOutConfig, seed: int) -> list[str]:
    """The ids of the tasks that a run holds out, in the tasks' order; of each level its share.

    A larger share adds tasks and takes none back. Raises TaskError where that leaves nothing to train on, or to hold
    out.
    """
    if config.tasks:
        chosen = named_by(config.tasks, tasks, "tasks.held_out.tasks", "the run")
    else:
        chosen = set(_drawn(tasks, seed)[: round(config.share * len(tasks))])
    if chosen and len(chosen) == len(tasks):
        raise TaskError(f"tasks.held_out: all of the {len(tasks)} tasks are held out; leave some to train on")
    if config.share and not chosen:
        raise TaskError(f"tasks.held_out.share: {config.share:g} of {len(tasks)} tasks is none; raise it or add tasks")
    return [task.id for task in tasks if task.id in chosen]


def _drawn(tasks: Sequence[Task], seed: int) -> list[str]:
    """The tasks' ids in the order in which they are held out: that of a level's tasks is by seed and id alone, and each
    level's are spread evenly over the whole, so that the first few have about its share of each."""
    draw = {task.id: digest_of(f"{seed} {task.id}") for task in tasks}
    places: dict[str, tuple[float, str]] = {}
    for level in {task.level for task in tasks}:
        own = sorted((task.id for task in tasks if task.level == level), key=draw.__getitem__)
        places |= {name: ((rank + 0.5) / len(own), draw[name]) for rank, name in enumerate(own)}
    return sorted(places, key=places.__getitem__)


def said_of_held_out(held_out: Sequence[str]) -> str:
    """Which tasks are held out, in a sentence; empty where none is."""
    return f"{len(held_out)} tasks are held out from training: {', '.join(held_out)}" if held_out else ""


def marks_of_tasks(tasks: Sequence[Task], config: TasksConfig) -> dict[str, Mark]:
    """The marks of those among the tasks that cannot tell a good program from a cheat, by id: of the shipped list, and
    of the user's. Raises TaskError for a list that cannot be read."""
    try:
        own = read_marks(Path(config.audit)) if config.audit else []
    except MarkError as error:
        raise TaskError(f"tasks.audit: {error}") from error
    return marked_among(tasks, [*shipped_marks(), *own])


def without_marked(tasks: Sequence[Task], marks: Mapping[str, Mark], config: TasksConfig) -> list[Task]:
    """The tasks that a run has. Raises TaskError where none is left."""
    if config.marked == "keep":
        return list(tasks)
    left = [task for task in tasks if task.id not in marks]
    if not left:
        raise TaskError(
            f"tasks: none of the {len(tasks)} that are named can tell a good program from a cheat "
            f"({', '.join(sorted(marks)[:3])}, ...); tasks.marked=keep trains on them all the same"
        )
    return left


def said_of_marked(marks: Mapping[str, Mark], config: TasksConfig) -> str:
    """What becomes of the marked tasks, in a sentence with their names; empty where there are none."""
    if not marks:
        return ""
    names = ", ".join(f"{name} ({' '.join(mark.kinds)})" for name, mark in marks.items())
    done = "kept (tasks.marked)" if config.marked == "keep" else "left out (tasks.marked=keep keeps them)"
    return f"{len(marks)} tasks that cannot tell a good program from a cheat are {done}: {names}"
