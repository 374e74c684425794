"""What teachers give, and how they fail."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from evaluators.records import Task


class TeacherError(Exception):
    """A teacher cannot be asked. One line: the teacher and the remedy."""


class TeacherDown(TeacherError):
    """A teacher that could be asked does not answer. The same run can go on later."""


@dataclass(frozen=True)
class Proposal:
    """A teacher's program, with the teacher's own analysis and design. Tokens: of the request that it answers, None if
    nobody counted any."""

    task_id: str
    source: str
    analysis: str
    design: str
    author: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Teacher(Protocol):
    """Proposes programs."""

    name: str

    def proposals(self, task: Task, prompt: str) -> Iterator[Proposal | Future[Proposal | None]]:
        """Programs for a task, for as long as they are asked for. `prompt`: the task's one-shot prompt.

        A program that is still to come is a future, whose result is None if it was lost and the phase goes on without
        it. The future raises TeacherError if the phase cannot go on.
        """
        ...
