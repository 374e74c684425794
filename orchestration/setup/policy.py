"""The policy of a run, as a Hugging Face folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from configs.addresses import without_login
from configs.schema import RunConfig
from evaluators.records import Task
from evaluators.tasks import profile_of, program_source
from evaluators.tasks.loader import TaskVariants
from evaluators.tasks.records import Variant
from learners.policy_files import LAST, fetch_policy, share_policy
from learners.room import telling_full_disk
from learners.tokenizing import PolicyError, load_tokenizer
from orchestration.run.storage import Storage
from orchestration.step.teachers import file_teachers
from prompts.comparison import Shown, compare
from prompts.mistakes import mistakes_in
from prompts.render import Exemplar, PromptRenderer


def check_policy(model: str) -> None:
    """Checks, without reading weights, that a policy can be loaded. Raises PolicyError if not."""
    if model == "scratch":
        return
    place, model = model, fetch_policy(model, weights=False)
    load_tokenizer(model)
    from transformers import AutoConfig  # here, as below: the driver of most runs starts without models' code

    try:
        AutoConfig.from_pretrained(model)
    except (OSError, ValueError, KeyError) as error:
        raise PolicyError(
            f"policy.model: {without_login(place)} has no usable config.json ({error}); give a model folder"
        ) from error
    folder = Path(place)
    if folder.is_dir() and not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise PolicyError(f"policy.model: {model} holds no weights (*.safetensors); give a complete checkpoint")


def is_of_hub(model: str) -> bool:
    """Whether a policy is named by an id of the hub: it is no URI, and no folder of this machine."""
    return model != "scratch" and "://" not in model and not model.startswith(("/", ".")) and not Path(model).exists()


def prepare_policy(config: RunConfig, tasks: Sequence[Task], folder: Path, shared: Storage | None = None) -> str:
    """The policy's folder, URI (see `fetch_policy`) or Hugging Face id. A `scratch` policy is made in `folder`, unless
    it is there already.

    If `shared`, the folder of a run, is on another file system than the local one, that policy is copied there, and its
    URI is returned: nodes need not share a disk. Raises PolicyError if its sizes do not fit each other, and OSError.
    """
    if config.policy.model != "scratch":
        return config.policy.model
    if shared is not None and shared.local_path is None:
        uri = shared.uri(folder.name)
        if not shared.is_file(f"{folder.name}/{LAST}"):
            share_policy(Path(prepare_policy(config, tasks, folder)), uri, shared.patience)
        return uri
    if not (folder / "model.safetensors").is_file():
        from learners.policy import make_policy

        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        with telling_full_disk(partial.parent):
            make_policy(partial, corpus(tasks, config), config.policy.scratch, config.policy.max_length, config.seed)
        shutil.rmtree(folder, ignore_errors=True)
        partial.replace(folder)
    return str(folder)


def corpus(tasks: Sequence[Task], config: RunConfig) -> Iterator[str]:
    """Texts to train the tokenizer on: prompts, and responses with programs of the bundled and the file teachers.

    If SFT teaches comparisons and repairs, their phrases are among them, with figures of no meaning.
    """
    renderer, arch = PromptRenderer(), config.evaluator.arch
    variants = TaskVariants(config.tasks.source, profile_of(arch))
    for task in tasks:
        reference = program_source(task)
        yield renderer.one_shot(reference, arch)
        right = [variant for variant in variants.of(task.id) if variant.expect != "wrong"]
        if right:
            exemplars = [Exemplar(variant.source, 1.0 + index) for index, variant in enumerate(right[:2])]
            prompt = renderer.contrastive(reference, exemplars, arch)
            yield prompt
            if config.sft.contrastive_share and config.sft.comparisons:
                yield from _comparisons(right, prompt, config.seed)
        if config.sft.repair_share:
            yield from _repairs(right, renderer, reference, config)
        for variant in right:
            yield renderer.response(variant.source, variant.analysis, variant.design)
        for teacher in file_teachers(config.sft):
            for proposal in teacher.proposals(task, ""):
                yield renderer.response(proposal.source, proposal.analysis, proposal.design)


def _comparisons(variants: Sequence[Variant], prompt: str, seed: int) -> Iterator[str]:
    """An analysis for each variant, as contrastive lessons have them."""
    rng = np.random.default_rng(seed)
    for index, variant in enumerate(variants):
        others = (*variants[index + 1 :], *variants[:index])
        shown = [Shown(float(rng.uniform(0.5, 4.0)), other.design) for other in others[:2]]
        yield compare([*shown, Shown(1.0, "", True)][:2], variant.analysis, prompt, rng)


def _repairs(variants: Sequence[Variant], renderer: PromptRenderer, reference: str, config: RunConfig) -> Iterator[str]:
    """Prompts and words of repairs, without a judge's message."""
    rng = np.random.default_rng(config.seed)
    for variant in variants:
        for mistake in mistakes_in(variant.source, rng)[:1]:
            yield renderer.repair(reference, mistake.source, "runtime error", "", config.evaluator.arch)
            yield renderer.response(variant.source, mistake.cause, mistake.cure)
