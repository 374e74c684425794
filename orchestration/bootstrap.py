"""What a run needs before it starts: its tasks, and its policy as a Hugging Face folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from configs.schema import RunConfig, TasksConfig
from evaluators.records import Task
from evaluators.tasks import TaskError, load_tasks, program_source
from evaluators.tasks.loader import load_variants
from learners.policy import load_tokenizer, make_policy
from prompts.render import Exemplar, PromptRenderer


def select_tasks(config: TasksConfig) -> list[Task]:
    """The tasks that a run trains on. Raises TaskError where the selection is empty or names an unknown task."""
    tasks = load_tasks(config.source, config.profile if config.source == "bundled" else "source")
    if unknown := set(config.include) - {task.id for task in tasks}:
        raise TaskError(f"tasks.include: {sorted(unknown)[0]} is not among the tasks of {config.source}")
    chosen = [
        task for task in tasks if task.level in config.levels and (not config.include or task.id in config.include)
    ]
    if not chosen:
        raise TaskError(f"tasks: none of the {len(tasks)} tasks of {config.source} is of levels {config.levels}")
    return chosen


def prepare_policy(config: RunConfig, tasks: Sequence[Task], folder: Path) -> str:
    """The policy's folder or Hugging Face id, checked to load. `scratch` is made in `folder` unless it stands there.

    Raises PolicyError where it does not load.
    """
    if config.policy.model != "scratch":
        load_tokenizer(config.policy.model)
        return config.policy.model
    if not (folder / "model.safetensors").is_file():
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        make_policy(partial, corpus(tasks, config), config.policy.scratch, config.policy.max_length, config.seed)
        shutil.rmtree(folder, ignore_errors=True)
        partial.replace(folder)
    return str(folder)


def corpus(tasks: Sequence[Task], config: RunConfig) -> Iterator[str]:
    """What the policy will read and write, for its tokenizer: prompts, and the bundled programs as responses."""
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
