"""Teachers of supervised fine-tuning: they propose programs for tasks (CUDA-L1 section 2.2).

A proposal is only a claim: the evaluator decides whether it is right.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from configs.addresses import HTTP
from configs.schema import RunConfig, SftConfig, TeacherConfig
from evaluators.compile.hints import needs_build, uses_inductor
from evaluators.records import Task
from evaluators.tasks import profile_of
from evaluators.tasks.loader import TaskVariants
from evaluators.tasks.records import Variant
from orchestration.run.answers import Answers
from orchestration.step.endpoints import Book, EndpointTeacher
from orchestration.step.failed_requests import EndpointKeys
from orchestration.step.proposals import Proposal, Teacher, TeacherError
from prompts.parse import parse_response

KINDS = OWN_KERNEL, COMPILED, TORCH = ("own kernel", "torch.compile", "torch")


class BundledTeacher:
    """The programs that come with the tasks, bundled or in a file, some of them wrong, in an order drawn from the
    seed."""

    name = "bundled"

    def __init__(self, seed: int, variants: TaskVariants | None = None, *, kernels_first: bool = False) -> None:
        """`variants`: those of the bundled tasks unless given. `kernels_first`: programs with kernels of their own come
        first, those that are expected to be wrong last, and one of each rule before a second one of any."""
        self._seed, self._kernels_first = seed, kernels_first
        self._variants = variants or TaskVariants()

    def proposals(self, task: Task, prompt: str) -> Iterator[Proposal]:
        """Every program of the task once."""
        variants = self._variants.of(task.id)
        drawn = np.random.default_rng([self._seed, *task.id.encode()]).permutation(len(variants))
        order = [variants[index] for index in drawn]
        for variant in _kernels_first(order) if self._kernels_first else order:
            author = f"teacher:bundled/{variant.name}"
            yield Proposal(task.id, variant.source, variant.analysis, variant.design, author)


def _kernels_first(variants: Sequence[Variant]) -> list[Variant]:
    """The same programs, otherwise in their order."""
    seen = Counter[str]()
    ranked = list[tuple[tuple[bool, int, int], Variant]]()
    for variant in variants:
        rule = variant.rule or variant.name
        ranked.append(((variant.expect == "wrong", seen[rule], KINDS.index(kind_of(variant.source))), variant))
        seen[rule] += 1
    return [variant for _, variant in sorted(ranked, key=lambda each: each[0])]


def kind_of(source: str) -> str:
    """One of `KINDS`: whose kernels a program runs, by its text."""
    if uses_inductor(source):
        return COMPILED
    return OWN_KERNEL if needs_build(source) else TORCH


class FileTeacher:
    """Programs from a JSONL file.

    A line has a `task_id` (with a `level_id`, or as `level1/name`) and a program as `source` or `custom_code`, or a
    whole `response`; `analysis`, `design` and `teacher` are optional. A line whose program is empty or null is left
    out.
    """

    def __init__(self, name: str, rows: Iterable[Proposal]) -> None:
        self.name = name
        self._rows: dict[str, list[Proposal]] = defaultdict(list)
        for proposal in rows:
            self._rows[proposal.task_id].append(proposal)

    @classmethod
    def read(cls, path: str) -> list[FileTeacher]:
        """The teachers of a file: one for each `teacher` that its lines name, as in a file of `warpsmith collect`, and
        one for all lines that name none. Raises TeacherError if the file cannot be read, and names a line that is not
        in the form."""
        name, by_teacher = Path(path).stem, dict[str, list[Proposal]]()
        try:
            lines = Path(path).read_text(encoding="utf-8").split("\n")  # not splitlines: a line may hold U+2028
        except (OSError, UnicodeDecodeError) as error:
            raise TeacherError(
                f"sft.teachers: {path} cannot be read ({error}); give a file, bundled, a name of sft.endpoints, or an "
                f"http(s) address"
            ) from error
        for number, line in enumerate(lines, start=1):
            try:
                if line.strip():
                    row = json.loads(line)
                    proposal = cls._proposal(row, f"teacher:{name}:{number}")
                    of_teacher = by_teacher.setdefault(str(row.get("teacher") or name), [])
                    of_teacher += [proposal] if proposal else []
            except (ValueError, KeyError, TypeError) as error:
                raise TeacherError(f"{path}:{number}: expected task_id and source or response ({error!r})") from error
        return [cls(teacher, rows) for teacher, rows in (by_teacher or {name: []}).items()]

    @staticmethod
    def _proposal(row: dict[str, object], author: str) -> Proposal | None:
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
        return Proposal(task_id, str(source), analysis, design, author)

    def proposals(self, task: Task, prompt: str) -> Iterator[Proposal]:
        """The file's programs for the task, in the order of its lines."""
        return iter(self._rows[task.id])


def file_teachers(config: SftConfig) -> list[FileTeacher]:
    """Those of the files among `sft.teachers`. Raises TeacherError for a file that cannot be read."""
    return [teacher for name in config.teachers if _is_file(name, config) for teacher in FileTeacher.read(name)]


def endpoints_of(config: SftConfig) -> list[tuple[str, str]]:
    """The addresses of the endpoints among `sft.teachers`, each with the key that gives it."""
    named = [name for name in config.teachers if name in config.endpoints]
    addresses = [("sft.teachers", name) for name in config.teachers if name.startswith(HTTP)]
    return [*((f"sft.endpoints.{name}.url", config.endpoints[name].url) for name in named), *addresses]


def _is_file(name: str, config: SftConfig) -> bool:
    return name != "bundled" and name not in config.endpoints and not name.startswith(HTTP)


def make_teachers(run: RunConfig, answers: Answers | None = None, phase: str = "") -> list[Teacher]:
    """The teachers that `sft.teachers` names. Raises TeacherError for a teacher that cannot be asked, and TaskError for
    a file of tasks that cannot be read.

    `answers`, `phase`: where the answers of endpoints are kept, and the key of the phase that asks.
    """
    config, teachers = run.sft, list[Teacher]()
    for index, name in enumerate(config.teachers):
        book = Book(answers, phase, index) if answers is not None else None
        if name == "bundled":
            variants = TaskVariants(run.tasks.source, profile_of(run.evaluator.arch))
            teachers.append(BundledTeacher(run.seed, variants, kernels_first=config.kernels_first))
        elif name in config.endpoints:
            teachers.append(_named(name, config.endpoints[name], book))
        elif _is_file(name, config):
            teachers += FileTeacher.read(name)
        else:
            teachers.append(EndpointTeacher(name, config.teacher_model, config.endpoint, book))
    return teachers


def _named(name: str, config: TeacherConfig, book: Book | None) -> EndpointTeacher:
    key = f"sft.endpoints.{name}"
    limit = f"a larger {key}.max_tokens" if config.max_tokens else "another limit of the endpoint"
    keys = EndpointKeys(
        f"{key}.url",
        f"{key}.model",
        f"{key}.asking.timeout",
        config.temperature,
        config.key,
        limit,
    )
    teacher = EndpointTeacher(config.url, config.model, config.asking, book, keys, config.max_tokens)
    teacher.name = name
    return teacher
