"""What the readers of tasks share: the programs that come with a task, and the check that a text is one."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from evaluators.records import Task
from evaluators.syntax import parse_source

_REQUIRED = {"Model", "get_inputs", "get_init_inputs"}


class TaskError(Exception):
    """A task cannot be read. The message is one line that names the task and the remedy."""


@dataclass(frozen=True)
class Variant:
    """A program that comes with a task. `expect`: `faster`, `same`, `slower` or `wrong`. `analysis` and `design`: the
    sentences that a teacher would write about it. `profiles`: the devices that it is for (`cpu`, `cuda`), all if
    empty. `rule`: what made it, the same for all tilings of a kernel; empty for a program that a person wrote."""

    task_id: str
    name: str
    expect: str
    analysis: str
    design: str
    source: str
    profiles: tuple[str, ...] = ()
    rule: str = ""


def checked(task: Task, place: str) -> Task:
    """The task itself. Raises TaskError, which names the `place` of its text, if it is not in KernelBench's format."""
    try:
        body = parse_source(task.source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TaskError(f"{place}: does not parse ({error})") from error
    defined = {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    if missing := _REQUIRED - defined:
        raise TaskError(f"{place}: not in KernelBench's format, {', '.join(sorted(missing))} missing")
    return task
