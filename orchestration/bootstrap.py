"""What a run needs before it starts: its tasks, and its policy as a Hugging Face folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from transformers import AutoConfig

from configs.schema import RunConfig, TasksConfig
from evaluators.marks import Mark, MarkError, marked_among, read_marks, shipped_marks
from evaluators.records import Task
from evaluators.tasks import TaskError, load_tasks, program_source
from evaluators.tasks.loader import load_variants
from learners.policy import PolicyError, load_tokenizer, make_policy
from orchestration.teachers import file_teachers
from prompts.render import Exemplar, PromptRenderer


def select_tasks(config: TasksConfig) -> list[Task]:
    """The tasks that a config names, marked ones too. Raises TaskError where it names none, or an unknown one."""
    tasks = load_tasks(config.source, config.profile if config.source == "bundled" else "source")
    if unknown := set(config.include) - {task.id for task in tasks}:
        raise TaskError(f"tasks.include: {sorted(unknown)[0]} is not among the tasks of {config.source}")
    chosen = [
        task for task in tasks if task.level in config.levels and (not config.include or task.id in config.include)
    ]
    if not chosen:
        raise TaskError(f"tasks: none of the {len(tasks)} tasks of {config.source} is of levels {config.levels}")
    return chosen


def marks_of_tasks(tasks: Sequence[Task], config: TasksConfig) -> dict[str, Mark]:
    """The marks of those among the tasks that cannot tell a good program from a cheat, by id: of the shipped list, and
    of the user's. Raises TaskError for a list that cannot be read."""
    try:
        own = read_marks(Path(config.audit)) if config.audit else []
    except MarkError as error:
        raise TaskError(f"tasks.audit: {error}") from error
    return marked_among(tasks, [*shipped_marks(), *own])


def without_marked(tasks: Sequence[Task], marks: Mapping[str, Mark], config: TasksConfig) -> list[Task]:
    """The tasks that a run trains on. Raises TaskError where none is left."""
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


def check_policy(model: str) -> None:
    """Whether a policy can be expected to load, without reading its weights. Raises PolicyError where it cannot."""
    if model == "scratch":
        return
    load_tokenizer(model)
    try:
        AutoConfig.from_pretrained(model)
    except (OSError, ValueError, KeyError) as error:
        raise PolicyError(f"policy.model: {model} has no usable config.json ({error}); give a model folder") from error
    folder = Path(model)
    if folder.is_dir() and not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise PolicyError(f"policy.model: {model} holds no weights (*.safetensors); give a complete checkpoint")


def prepare_policy(config: RunConfig, tasks: Sequence[Task], folder: Path) -> str:
    """The policy's folder or Hugging Face id. `scratch` is made in `folder`, unless it stands there already.

    Raises PolicyError where its sizes do not fit each other.
    """
    if config.policy.model != "scratch":
        return config.policy.model
    if not (folder / "model.safetensors").is_file():
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        make_policy(partial, corpus(tasks, config), config.policy.scratch, config.policy.max_length, config.seed)
        shutil.rmtree(folder, ignore_errors=True)
        partial.replace(folder)
    return str(folder)


def corpus(tasks: Sequence[Task], config: RunConfig) -> Iterator[str]:
    """What the policy will read and write, for its tokenizer: prompts, and the programs of the bundled teacher and of
    those that are files, as responses."""
    renderer, arch = PromptRenderer(), config.evaluator.arch
    for task in tasks:
        reference = program_source(task)
        yield renderer.one_shot(reference, arch)
        right = [variant for variant in load_variants(task.id) if variant.expect != "wrong"]
        if right:
            exemplars = [Exemplar(variant.source, 1.0 + index) for index, variant in enumerate(right[:2])]
            yield renderer.contrastive(reference, exemplars, arch)
        for variant in right:
            yield renderer.response(variant.source, variant.analysis, variant.design)
        for teacher in file_teachers(config.sft):
            for proposal in teacher.proposals(task, ""):
                yield renderer.response(proposal.source, proposal.analysis, proposal.design)
