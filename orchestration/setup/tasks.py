"""The tasks of a run: those that its config names, less the marked ones, some of them held out."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from configs.schema import HeldOutConfig, RunConfig, TasksConfig
from evaluators.audit.marks import Mark, MarkError, marked_among, read_marks, shipped_marks
from evaluators.generator.structure import UntraceableError, structure_digest
from evaluators.records import Task, digest_of
from evaluators.tasks import ProgramError, TaskError, TaskProgram, load_tasks

_log = logging.getLogger(__name__)
_NAMED = 5  # tasks that a message names


@dataclass(frozen=True)
class RunTasks:
    """The tasks of one run: `training` are those that phases train on, `held_out` those that only assessments see.

    `marks`: of the tasks that cannot tell a good program from a cheat, by task id.
    """

    training: list[Task]
    held_out: list[Task]
    marks: Mapping[str, Mark]
    assessed: list[Task]
    """All of them, in the order of their source."""

    @classmethod
    def draw(cls, named: Sequence[Task], config: RunConfig) -> RunTasks:
        """The tasks of a new run. `named`: as `select_tasks` gives them. Raises TaskError."""
        marks = marks_of_tasks(named, config.tasks)
        assessed = without_marked(named, marks, config.tasks)
        unmarked = [task for task in assessed if task.id not in marks]  # figures are of these
        if config.tasks.held_out.source:
            further = {task.id for task in held_out_of_source(config.tasks)}
            drawn = cls._split(assessed, marks, [task.id for task in assessed if task.id in further])
            refuse_shared_structures(drawn.training, drawn.held_out, config.tasks)
            return drawn
        return cls._split(assessed, marks, draw_held_out(unmarked, config.tasks.held_out, config.seed))

    @classmethod
    def of_begun_run(
        cls, named: Sequence[Task], config: TasksConfig, marks: Mapping[str, Mark], held_out: Sequence[str]
    ) -> RunTasks:
        """The tasks of a run that has begun with these marks and held-out tasks."""
        return cls._split(without_marked(named, marks, config), marks, held_out)

    def measured(self, training: int) -> list[Task]:
        """The tasks of an assessment: those held out, and so many that are trained on (0: all), in the order of
        `assessed`. A draw by id alone, so that runs of several seeds measure the same; each level gives its share."""
        drawn = set(_order_of_holding_out(self.training, 0)[: training or None])
        held_out = {task.id for task in self.held_out}
        return [task for task in self.assessed if task.id in drawn or task.id in held_out]

    @classmethod
    def _split(cls, assessed: list[Task], marks: Mapping[str, Mark], held_out: Sequence[str]) -> RunTasks:
        return cls(
            [task for task in assessed if task.id not in held_out],
            [task for task in assessed if task.id in held_out],
            marks,
            assessed,
        )


def select_tasks(config: TasksConfig) -> list[Task]:
    """The tasks that a configuration names, those of `held_out.source` last, marked ones included. Raises TaskError for
    none, for an unknown one, or for an id that is used twice."""
    tasks = load_tasks(config.source, config.profile)
    included = match_names(config.include or ["*"], tasks, "tasks.include", config.source)
    chosen = [task for task in tasks if task.level in config.levels and task.id in included]
    if not chosen:
        raise TaskError(f"tasks: none of the {len(tasks)} tasks of {config.source} is of levels {config.levels}")
    further = held_out_of_source(config)
    if twice := sorted({task.id for task in chosen} & {task.id for task in further}):
        raise TaskError(
            f"tasks.held_out.source: {twice[0]} is a task of {config.source}, too; leave it out with tasks.include, or "
            f"number it otherwise"
        )
    return [*chosen, *further]


def refuse_broken(tasks: Sequence[Task], remedy: str = "correct it, or leave it out with tasks.include") -> None:
    """Raises TaskError for a task whose own program cannot be imported. Imports them all."""
    import torch

    for task in tasks:
        try:
            TaskProgram(task, torch.device("meta"))
        except (ProgramError, SyntaxError, ValueError) as error:
            message = " ".join(str(error).split())
            shown = message if task.id in message else f"{task.id}: {message}"
            raise TaskError(f"{shown}; {remedy}") from error


def held_out_of_source(config: TasksConfig) -> list[Task]:
    """The tasks of `held_out.source` that `held_out.tasks` names, or all of them; none without a source. Raises
    TaskError."""
    source, names = config.held_out.source, config.held_out.tasks
    if not source:
        return []
    tasks = load_tasks(source, config.profile)
    chosen = match_names(names or ["*"], tasks, "tasks.held_out.tasks", source)
    return [task for task in tasks if task.id in chosen]


def refuse_shared_structures(training: Sequence[Task], held_out: Sequence[Task], config: TasksConfig) -> None:
    """Raises TaskError if a task that is trained on has the structure of a held-out one, whatever their names and sizes
    (`evaluators.generator.structure`), or if a held-out task cannot be traced. Takes some milliseconds a task."""
    kept: dict[str, str] = {}
    for task in held_out:
        try:
            kept.setdefault(structure_digest(task), task.id)
        except UntraceableError as error:
            raise TaskError(
                f"tasks.held_out.source: the structure of {error}: it cannot be told from those of other tasks; leave "
                f"it out"
            ) from error
    untraced, shared = list[str](), list[tuple[str, str]]()
    for task in training:
        try:
            if (digest := structure_digest(task)) in kept:
                shared.append((task.id, kept[digest]))
        except UntraceableError:
            untraced.append(task.id)
    if shared:
        pairs = ", ".join(f"{trained} (as {held})" for trained, held in shared[:_NAMED])
        raise TaskError(
            f"tasks.held_out.source: {len(shared)} tasks of {config.source} have the structure of a held-out task: "
            f"{pairs}{', ...' if len(shared) > _NAMED else ''}; leave them out with tasks.include, leave held-out ones "
            f"out with tasks.held_out.tasks, or generate tasks with --keep-out"
        )
    if untraced:
        _log.warning(
            "%d tasks cannot be traced, so their structures are unknown: %s", len(untraced), ", ".join(untraced)
        )


def match_names(names: Sequence[str], tasks: Sequence[Task], key: str, place: str) -> set[str]:
    """The ids of the tasks that `names` match: ids, or patterns as in a shell.

    Raises TaskError for a name without a match; its message has the configuration's `key` and the `place` searched.
    """
    matched: set[str] = set()
    for name in names:
        matches = {task.id for task in tasks if fnmatchcase(task.id, name)}
        if not matches:
            raise TaskError(f"{key}: {name} is not among the tasks of {place}")
        matched |= matches
    return matched


def draw_held_out(tasks: Sequence[Task], config: HeldOutConfig, seed: int) -> list[str]:
    """The ids of the tasks that a run holds out, in the tasks' order: the same share of each level.

    With `unit=structure`, tasks of one structure stay together, so that a share is as near as their groups allow. A
    larger share adds tasks and takes none back. Raises TaskError if nothing is left to train on, or to hold out.
    """
    groups = _groups_by_structure(tasks) if config.unit == "structure" and (config.tasks or config.share) else {}
    if config.tasks:
        named = match_names(config.tasks, tasks, "tasks.held_out.tasks", "the run")
        chosen = {member for name in named for member in groups.get(name, [name])}
    else:
        chosen = _nearest_share(_order_of_holding_out(tasks, seed), groups, config.share * len(tasks))
    if chosen and len(chosen) == len(tasks):
        raise TaskError(f"tasks.held_out: all of the {len(tasks)} tasks are held out; leave some to train on")
    if config.share and not chosen:
        raise TaskError(f"tasks.held_out.share: {config.share:g} of {len(tasks)} tasks is none; raise it or add tasks")
    return [task.id for task in tasks if task.id in chosen]


def _nearest_share(order: Sequence[str], groups: Mapping[str, Sequence[str]], wanted: float) -> set[str]:
    """The first tasks of an order, each with its group, as many as come nearest to the `wanted` number."""
    chosen: set[str] = set()
    for name in order:
        if name in chosen:
            continue
        more = chosen | set(groups.get(name, [name]))
        if abs(len(more) - round(wanted)) > abs(len(chosen) - round(wanted)):
            break
        chosen = more
    return chosen


def _groups_by_structure(tasks: Sequence[Task]) -> dict[str, list[str]]:
    """By task, the ids of all that have its structure, itself included. A task that cannot be traced is alone."""
    members: dict[str, list[str]] = {}
    for task in tasks:
        try:
            members.setdefault(structure_digest(task), []).append(task.id)
        except UntraceableError as error:
            _log.warning("tasks.held_out.unit: the structure of %s: it counts as the only one of its kind", error)
            members[task.id] = [task.id]
    return {name: names for names in members.values() for name in names}


def _order_of_holding_out(tasks: Sequence[Task], seed: int) -> list[str]:
    """The tasks' ids in the order in which they are held out.

    Within a level the order depends on seed and id alone. Each level is spread evenly over the whole order, so that
    any number of first tasks has about the same share of each level.
    """
    draw = {task.id: digest_of(f"{seed} {task.id}") for task in tasks}
    places: dict[str, tuple[float, str]] = {}
    for level in {task.level for task in tasks}:
        own = sorted((task.id for task in tasks if task.level == level), key=draw.__getitem__)
        places |= {name: ((rank + 0.5) / len(own), draw[name]) for rank, name in enumerate(own)}
    return sorted(places, key=places.__getitem__)


def describe_held_out(held_out: Sequence[str]) -> str:
    """A sentence that names the held-out tasks; empty without any."""
    return f"{len(held_out)} tasks are held out from training: {', '.join(held_out)}" if held_out else ""


def marks_of_tasks(tasks: Sequence[Task], config: TasksConfig) -> dict[str, Mark]:
    """The marks of tasks that cannot tell a good program from a cheat, by id, from the shipped list and the user's.

    Raises TaskError for a list that cannot be read."""
    try:
        own = read_marks(Path(config.audit)) if config.audit else []
    except MarkError as error:
        raise TaskError(f"tasks.audit: {error}") from error
    return marked_among(tasks, [*shipped_marks(), *own])


def without_marked(tasks: Sequence[Task], marks: Mapping[str, Mark], config: TasksConfig) -> list[Task]:
    """The tasks that a run works on. Raises TaskError if none is left."""
    if config.marked == "keep":
        return list(tasks)
    left = [task for task in tasks if task.id not in marks]
    if not left:
        raise TaskError(
            f"tasks: none of the {len(tasks)} that are named can tell a good program from a cheat "
            f"({', '.join(sorted(marks)[:3])}, ...); tasks.marked=keep trains on them all the same"
        )
    return left


def describe_marked(marks: Mapping[str, Mark], config: TasksConfig) -> str:
    """A sentence that names the marked tasks and says whether they are kept; empty without any."""
    if not marks:
        return ""
    names = ", ".join(f"{name} ({' '.join(mark.kinds)})" for name, mark in marks.items())
    done = "kept (tasks.marked)" if config.marked == "keep" else "left out (tasks.marked=keep keeps them)"
    return f"{len(marks)} tasks that cannot tell a good program from a cheat are {done}: {names}"
