"""Teachers of supervised fine-tuning: they propose programs for tasks (CUDA-L1 section 2.2).

A proposal is only a claim: the evaluator decides whether it is right.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from openai import APIError, OpenAI
from openai.types.chat import ChatCompletion

from configs.schema import RunConfig, SftConfig
from evaluators.records import Task
from evaluators.tasks import profile_of
from evaluators.tasks.loader import TaskVariants
from prompts.parse import parse_response

_REQUEST_SECONDS = 300.0


class TeacherError(Exception):
    """A teacher cannot be asked. One line: the teacher and the remedy."""


@dataclass(frozen=True)
class Proposal:
    """A teacher's program, with the teacher's own analysis and design."""

    task_id: str
    source: str
    analysis: str
    design: str
    author: str


class Teacher(Protocol):
    """Proposes programs."""

    name: str

    def proposals(self, task: Task, prompt: str) -> Iterator[Proposal]:
        """Programs for a task, for as long as they are asked for. `prompt`: the task's one-shot prompt."""
        ...


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


class EndpointTeacher:
    """A model behind an OpenAI-compatible endpoint; the key comes from OPENAI_API_KEY."""

    def __init__(self, url: str, model: str) -> None:
        if not model:
            raise TeacherError(f"sft.teacher_model: name the model to ask {url} for")
        self.name = model
        self._url = url
        key = os.environ.get("OPENAI_API_KEY") or "none"  # a private server may need no key
        self._client = OpenAI(base_url=url, api_key=key, timeout=_REQUEST_SECONDS, max_retries=3)

    def proposals(self, task: Task, prompt: str) -> Iterator[Proposal]:
        """Samples without end. Raises TeacherError if the endpoint does not answer in the chat format."""
        while True:
            try:
                answer = self._client.chat.completions.create(
                    model=self.name, messages=[{"role": "user", "content": prompt}], temperature=1.0
                )
            except APIError as error:
                raise TeacherError(f"sft.teachers: {self._url} does not answer ({error})") from error
            if not isinstance(answer, ChatCompletion) or not answer.choices:  # a web page, or an error with status 200
                raise TeacherError(f"sft.teachers: {self._url} gives no chat completion; most addresses end in /v1")
            choice = answer.choices[0]
            parsed = parse_response(choice.message.content or "", choice.finish_reason or "stop")
            yield Proposal(
                task.id, parsed.code or "", parsed.analysis or "", parsed.design or "", f"teacher:{self.name}"
            )


def file_teachers(config: SftConfig) -> list[FileTeacher]:
    """The files among `sft.teachers`. Raises TeacherError for a file that cannot be read."""
    return [FileTeacher(name) for name in config.teachers if _is_file(name)]


def _is_file(name: str) -> bool:
    return name != "bundled" and not name.startswith(("http://", "https://"))


def make_teachers(run: RunConfig) -> list[Teacher]:
    """The teachers that `sft.teachers` names. Raises TeacherError for a teacher that cannot be asked, and TaskError for
    a file of tasks that cannot be read."""
    config, teachers = run.sft, list[Teacher]()
    for name in config.teachers:
        if name == "bundled":
            variants = TaskVariants(run.tasks.source, profile_of(run.evaluator.arch))
            teachers.append(BundledTeacher(run.seed, variants))
        elif _is_file(name):
            teachers.append(FileTeacher(name))
        else:
            teachers.append(EndpointTeacher(name, config.teacher_model))
    return teachers


class TeacherRounds:
    """Asks every teacher about every task, until `sft.successes` of its programs are right, or `sft.tries` are used up.

    `prompt`: the prompt for a task.
    """

    def __init__(
        self, tasks: Sequence[Task], teachers: Sequence[Teacher], config: SftConfig, prompt: Callable[[Task], str]
    ) -> None:
        self._config = config
        # By position: two teachers may have one name (a model behind two endpoints).
        self._open = {
            (task.id, index): teacher.proposals(task, prompt(task))
            for task in tasks
            for index, teacher in enumerate(teachers)
        }
        self._tries: dict[tuple[str, int], int] = defaultdict(int)
        self._successes: dict[tuple[str, int], int] = defaultdict(int)

    def next_round(self) -> list[tuple[tuple[str, int], Proposal]]:
        """As many proposals of each teacher as may be needed, with the key for `succeeded`. Empty at the end."""
        asked: list[tuple[tuple[str, int], Proposal]] = []
        for key, stream in list(self._open.items()):
            needed = self._config.successes - self._successes[key]
            for _ in range(min(needed, self._config.tries - self._tries[key])):
                proposal = next(stream, None)
                if proposal is None:
                    del self._open[key]
                    break
                self._tries[key] += 1
                asked.append((key, proposal))
        return asked

    def succeeded(self, key: tuple[str, int]) -> None:
        """Counts one right program of a teacher for a task."""
        self._successes[key] += 1
