"""What a run needs before it starts: its tasks, and its policy as a Hugging Face folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from transformers import AutoConfig

from configs.checks import leaves
from configs.load import ConfigError, parse_config
from configs.schema import HeldOutConfig, RunConfig, TasksConfig
from evaluators.audit.marks import Mark, MarkError, marked_among, read_marks, shipped_marks
from evaluators.records import Task, digest_of
from evaluators.tasks import TaskError, load_tasks, program_source
from evaluators.tasks.loader import load_variants
from learners.policy import PolicyError, load_tokenizer, make_policy
from orchestration.storage import Storage
from orchestration.teachers import file_teachers
from prompts.render import Exemplar, PromptRenderer

_JUDGED_BY = ("evaluator.limits.", "evaluator.require_shapes", "guard.enabled")
"""What a verdict depends on beside what it says itself."""


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


def check_verdicts_of(config: RunConfig) -> None:
    """Whether the runs whose verdicts are to be taken over judged as this one does. Raises ConfigError where not."""
    for folder in config.evaluator.verdicts_of:
        place = Storage.at(*os.path.split(folder.rstrip("/")))
        if not place.is_file("config.yaml"):
            raise ConfigError(f"evaluator.verdicts_of: {folder} holds no config.yaml; give a run, or published results")
        if not (place.is_file("verdicts.parquet") or place.is_folder("verdicts")):
            raise ConfigError(f"evaluator.verdicts_of: {folder} holds no verdicts yet; leave it out")
        other = parse_config(place.read("config.yaml").decode(), f"{folder}/config.yaml")
        judged = {key: value for key, value, _ in leaves(other)}
        for key, value, _ in leaves(config):
            if key.startswith(_JUDGED_BY) and judged[key] != value:
                raise ConfigError(
                    f"evaluator.verdicts_of: {folder} was judged with {key}={judged[key]}, which is {value} here; "
                    f"leave it out, or set the same"
                )


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
