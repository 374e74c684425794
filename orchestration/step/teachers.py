"""Teachers of supervised fine-tuning: whoever proposes programs for tasks (CUDA-L1 section 2.2).

A proposal is a claim; only the evaluator says whether it is right.
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

from configs.schema import SftConfig
from evaluators.records import Task
from evaluators.tasks.loader import load_variants
from prompts.parse import parse_response

_REQUEST_SECONDS = 300.0


class TeacherError(Exception):
    """A teacher that cannot be asked; one line that names it and the remedy."""


@dataclass(frozen=True)
class Proposal:
    """A teacher's program, with what it says about it."""

    task_id: str
    source: str
    analysis: str
    design: str
    author: str


class Teacher(Protocol):
    """Proposes programs for a task, one after the other, for as long as it is asked."""

    name: str

    def proposals(self, task: Task, prompt: str) -> Iterator[Proposal]: ...


class BundledTeacher:
    """The programs that ship with the bundled tasks, wrong ones among them, in an order drawn from the seed."""

    name = "bundled"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def proposals(self, task: Task, prompt: str) -> Iterator[Proposal]:
        variants = load_variants(task.id)
        for index in np.random.default_rng([self._seed, *task.id.encode()]).permutation(len(variants)):
            variant = variants[index]
            author = f"teacher:bundled/{variant.name}"
            yield Proposal(task.id, variant.source, variant.analysis, variant.design, author)


class FileTeacher:
    """Programs from a JSONL file: `task_id` (with `level_id`, or as `level1/name`) and `source` or `custom_code`, or a
    whole `response`; `analysis` and `design` where there are any. A line whose program is empty or null is left out."""

    def __init__(self, path: str) -> None:
        """Raises TeacherError for a file that does not read."""
        self.name = Path(path).stem
        self._rows: dict[str, list[Proposal]] = defaultdict(list)
        try:
            lines = Path(path).read_text(encoding="utf-8").split("\n")  # U+2028 may stand inside a line
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
            raise TypeError(f"a JSON object is wanted, not a {type(row).__name__}")
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
        return iter(self._rows[task.id])


class EndpointTeacher:
    """A model behind an OpenAI-compatible endpoint; the key comes from OPENAI_API_KEY."""

    def __init__(self, url: str, model: str) -> None:
        if not model:
            raise TeacherError(f"sft.teacher_model: name the model to ask {url} for")
        self.name = model
        self._url = url
        key = os.environ.get("OPENAI_API_KEY") or "none"  # servers of one's own ask for none
        self._client = OpenAI(base_url=url, api_key=key, timeout=_REQUEST_SECONDS, max_retries=3)

    def proposals(self, task: Task, prompt: str) -> Iterator[Proposal]:
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
    """The files among `sft.teachers`. Raises TeacherError for one that does not read."""
    return [FileTeacher(name) for name in config.teachers if _is_file(name)]


def _is_file(name: str) -> bool:
    return name != "bundled" and not name.startswith(("http://", "https://"))


def make_teachers(config: SftConfig, seed: int) -> list[Teacher]:
    """The teachers that `sft.teachers` names. Raises TeacherError for one that cannot be asked."""
    made: list[Teacher] = []
    for name in config.teachers:
        if name == "bundled":
            made.append(BundledTeacher(seed))
        elif _is_file(name):
            made.append(FileTeacher(name))
        else:
            made.append(EndpointTeacher(name, config.teacher_model))
    return made


class Lesson:
    """Asks every teacher about every task, until `successes` of its programs are right or `tries` are used up."""

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
        """As many proposals from each as could still be needed; an empty list when all are through."""
        asked: list[tuple[tuple[str, int], Proposal]] = []
        for key, stream in list(self._open.items()):
            wanted = self._config.successes - self._successes[key]
            for _ in range(min(wanted, self._config.tries - self._tries[key])):
                proposal = next(stream, None)
                if proposal is None:
                    del self._open[key]
                    break
                self._tries[key] += 1
                asked.append((key, proposal))
        return asked

    def succeeded(self, key: tuple[str, int]) -> None:
        """Counts one verified program of a teacher for a task."""
        self._successes[key] += 1
