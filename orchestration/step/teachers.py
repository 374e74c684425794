"""Teachers of supervised fine-tuning: they propose programs for tasks (CUDA-L1 section 2.2).

A proposal is only a claim: the evaluator decides whether it is right.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from configs.schema import RunConfig, SftConfig
from evaluators.records import Task
from evaluators.tasks import profile_of
from evaluators.tasks.loader import TaskVariants
from orchestration.run.answers import Answers
from orchestration.step.endpoints import Book, EndpointTeacher
from orchestration.step.proposals import Proposal, Teacher, TeacherError
from prompts.parse import parse_response


class BundledTeacher:
    """The programs that come with the tasks, bundled or in a file, some of them wrong, in an order drawn from the
    seed."""

    name = "bundled"

    def __init__(self, seed: int, variants: TaskVariants | None = None) -> None:
        """`variants`: those of the bundled tasks unless given."""
        self._seed = seed
        self._variants = variants or TaskVariants()

    def proposals(self, task: Task, prompt: str) -> Iterator[Proposal]:
        """Every program of the task once."""
        variants = self._variants.of(task.id)
        for index in np.random.default_rng([self._seed, *task.id.encode()]).permutation(len(variants)):
            variant = variants[index]
            author = f"teacher:bundled/{variant.name}"
            yield Proposal(task.id, variant.source, variant.analysis, variant.design, author)


class FileTeacher:
    """Programs from a JSONL file.

    A line has a `task_id` (with a `level_id`, or as `level1/name`) and a program as `source` or `custom_code`, or a
    whole `response`; `analysis` and `design` are optional. A line whose program is empty or null is left out.
    """

    def __init__(self, path: str) -> None:
        """Raises TeacherError if the file cannot be read, and names a line that is not in the form."""
        self.name = Path(path).stem
        self._rows: dict[str, list[Proposal]] = defaultdict(list)
        try:
            lines = Path(path).read_text(encoding="utf-8").split("\n")  # not splitlines: a line may hold U+2028
        except (OSError, UnicodeDecodeError) as error:
            raise TeacherError(f"sft.teachers: {path} cannot be read ({error})") from error
        for number, line in enumerate(lines, start=1):
            try:
                if line.strip() and (proposal := self._proposal(json.loads(line), number)):
                    self._rows[proposal.task_id].append(proposal)
            except (ValueError, KeyError, TypeError) as error:
                raise TeacherError(f"{path}:{number}: expected task_id and source or response ({error!r})") from error

    def _proposal(self, row: dict[str, object], number: int) -> Proposal | None:
        if not isinstance(row, dict):
            raise TypeError(f"expected a JSON object, not a {type(row).__name__}")
        if not row.keys() & {"source", "custom_code", "response"}:
            raise KeyError("source")
        task_id = f"level{row['level_id']}/{row['task_id']}" if "level_id" in row else str(row["task_id"])
        parsed = parse_response(str(row.get("response") or ""))
        source = row.get("source") or row.get("custom_code") or parsed.code
        if not source or source == "None":
            return None
        analysis = str(row.get("analysis") or parsed.analysis or "The reference runs one operator after the other.")
        design = str(row.get("design") or parsed.design or "Do the same work in fewer and cheaper steps.")
        return Proposal(task_id, str(source), analysis, design, f"teacher:{self.name}:{number}")

    def proposals(self, task: Task, prompt: str) -> Iterator[Proposal]:
        """The file's programs for the task, in the order of its lines."""
        return iter(self._rows[task.id])


def file_teachers(config: SftConfig) -> list[FileTeacher]:
    """The files among `sft.teachers`. Raises TeacherError for a file that cannot be read."""
    return [FileTeacher(name) for name in config.teachers if _is_file(name)]


def _is_file(name: str) -> bool:
    return name != "bundled" and not name.startswith(("http://", "https://"))


def make_teachers(run: RunConfig, answers: Answers | None = None, phase: str = "") -> list[Teacher]:
    """The teachers that `sft.teachers` names. Raises TeacherError for a teacher that cannot be asked, and TaskError for
    a file of tasks that cannot be read.

    `answers`, `phase`: where the answers of endpoints are kept, and the key of the phase that asks.
    """
    config, teachers = run.sft, list[Teacher]()
    for index, name in enumerate(config.teachers):
        if name == "bundled":
            variants = TaskVariants(run.tasks.source, profile_of(run.evaluator.arch))
            teachers.append(BundledTeacher(run.seed, variants))
        elif _is_file(name):
            teachers.append(FileTeacher(name))
        else:
            book = Book(answers, phase, index) if answers is not None else None
            teachers.append(EndpointTeacher(name, config.teacher_model, config.endpoint, book))
    return teachers
