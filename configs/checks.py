"""Checks a configuration whose types are right: ranges, choices and agreement between keys.

Looks at values only, never at the machine, the network or a file, so that a configuration can be checked anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import Field, fields, is_dataclass
from typing import Any

from configs.addresses import without_login
from configs.checks_archs import ACCELERATOR, architecture_violations
from configs.checks_endpoint import endpoint_violations
from configs.checks_teachers import teacher_violations
from configs.node_groups import parse_group, parse_nodes
from configs.schema import ONLY_ON_GPUS, RunConfig
from configs.waits import longest_wait

UNSAFE_IN_NAMES = '/\\:*?"<>|\n'
"""Characters that a run's name must not have, because it becomes a folder on any file system."""
SERVED_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of adapters that rollout engines know (vLLM 0.26 to 0.33). Another rank takes the memory of the next one."""
LOWEST_TEMPERATURE = 0.01
"""Of sampling for contrastive RL. vLLM raises a lower one to this, and at 0 all responses to a prompt are the same."""


def listed(words: Sequence[Any]) -> str:
    """`a, b or c`."""
    texts = [str(word) for word in words]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def leaves(section: Any, prefix: str = "") -> Iterator[tuple[str, Any, Field[Any]]]:
    """Every key of a nested configuration that is not a section: its dotted name, its value and its field."""
    for item in fields(section):
        value, key = getattr(section, item.name), f"{prefix}{item.name}"
        if is_dataclass(value):
            yield from leaves(value, f"{key}.")
        elif isinstance(value, dict):
            for name, inner in value.items():
                yield from leaves(inner, f"{key}.{name}.")
        else:
            yield key, value, item


def violations(config: RunConfig) -> Iterator[tuple[tuple[str, ...], str]]:
    """All faults of a configuration: the keys concerned, and a sentence with value and remedy."""
    for key, value, item in leaves(config):
        choices = item.metadata.get("choices")
        if choices is not None:
            yield from _outside_choices(key, value, choices, may_be_empty=item.metadata.get("may_be_empty", False))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield from _outside_range(key, value, item.metadata.get("low"), item.metadata.get("high"))
    yield from _naming(config)
    yield from _lists(config)
    yield from _lengths(config)
    yield from _model_shape(config)
    yield from _evaluator(config)
    yield from _guard(config)
    yield from _ranks(config)
    yield from _offload(config)
    yield from _placement(config)
    yield from _adapters(config)
    yield from _agreement(config)
    yield from _stall(config)
    yield from _nodes(config)
    yield from architecture_violations(config)
    yield from endpoint_violations(config)
    yield from teacher_violations(config)


Violations = Iterator[tuple[tuple[str, ...], str]]


def _outside_choices(key: str, value: Any, choices: Sequence[Any], *, may_be_empty: bool) -> Violations:
    if not isinstance(value, list):
        if value not in choices:
            yield (key,), f"{key} must be {listed(choices)}, got {value!r}"
        return
    for word in value:
        if word not in choices:
            yield (key,), f"{key} must be a list of {listed(choices)}, got {word!r}"
    if not value and not may_be_empty:
        yield (key,), f"{key} must not be empty: name at least one of {listed(choices)}"
    repeated = sorted({word for word in value if value.count(word) > 1})
    if repeated:
        yield (key,), f"{key} names {repeated[0]} more than once: name it once"


def _outside_range(key: str, value: float, low: float | None, high: float | None) -> Violations:
    if not math.isfinite(value):
        yield (key,), f"{key} must be a finite number, got {value}"
    elif low is not None and high is not None and not low <= value <= high:
        yield (key,), f"{key} must be from {low:g} to {high:g}, got {value}"
    elif low is not None and value < low:
        yield (key,), f"{key} must be at least {low:g}, got {value}"
    elif high is not None and value > high:
        yield (key,), f"{key} must be at most {high:g}, got {value}"


def _naming(config: RunConfig) -> Violations:
    name = config.name
    if not name.strip() or set(name) & set(UNSAFE_IN_NAMES) or name.startswith("."):
        yield ("name",), f"name must be usable as a folder's name (letters, digits, '-', '_', '.'), got {name!r}"
    if not config.root.strip():
        yield ("root",), f"root must not be empty, got {config.root!r}"
    if not config.policy.model.strip():
        yield ("policy.model",), "policy.model must be `scratch`, or a Hugging Face model id, path or URI, got ''"
    if without_login(config.policy.model) != config.policy.model:
        yield (
            ("policy.model",),
            "policy.model has a login, which reports and manifests would show: give it by the environment of all nodes "
            "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)",
        )


def _nodes(config: RunConfig) -> Violations:
    texts = config.cluster.gpu_nodes
    try:
        groups = [parse_group(text) for text in texts]
    except ValueError as error:
        yield ("cluster.gpu_nodes",), f"cluster.gpu_nodes {error}"
    else:
        kinds = [(group.accelerator, group.gpus) for group in groups]
        if repeated := [text for text, kind in zip(texts, kinds, strict=True) if kinds.count(kind) > 1]:
            yield ("cluster.gpu_nodes",), f"cluster.gpu_nodes has two groups of one kind: join {listed(repeated)}"
        bare = [text for text, group in zip(texts, groups, strict=True) if group.selector is None]
        if len(groups) > 1 and bare:
            yield (
                ("cluster.gpu_nodes",),
                f"cluster.gpu_nodes has several kinds, so each must name the label of its nodes: "
                f"{bare[0]}@nvidia.com/gpu.product=...",
            )
    try:
        parse_nodes(config.cluster.cpu_nodes)
    except ValueError as error:
        yield ("cluster.cpu_nodes",), f"cluster.cpu_nodes {error}"


def _lists(config: RunConfig) -> Violations:
    if not config.tasks.levels:
        yield ("tasks.levels",), "tasks.levels must not be empty: [1, 2, 3] takes every bundled task"
    if not all(name.strip() for name in config.tasks.source.split(",")):
        yield (
            ("tasks.source",),
            f"tasks.source must be bundled, a folder, a .jsonl or .parquet file, or several with commas between them, "
            f"got {config.tasks.source!r}",
        )
    if config.tasks.held_out.share and config.tasks.held_out.tasks:
        yield (
            ("tasks.held_out.tasks", "tasks.held_out.share"),
            f"tasks.held_out must have a share or tasks, not both: set tasks.held_out.share=0 or leave "
            f"{config.tasks.held_out.tasks[0]} out",
        )
    if config.tasks.held_out.source and config.tasks.held_out.share:
        yield (
            ("tasks.held_out.source", "tasks.held_out.share"),
            f"tasks.held_out must have a share or a source, not both: set tasks.held_out.share=0 or leave "
            f"{config.tasks.held_out.source} out",
        )
    if config.tasks.audit and not config.tasks.audit.endswith(".parquet"):
        yield (
            ("tasks.audit",),
            f"tasks.audit must be empty or a .parquet file of `warpsmith audit TASKS --output FILE`, "
            f"got {config.tasks.audit!r}",
        )


def _lengths(config: RunConfig) -> Violations:
    limit, response = config.policy.max_length, config.rollout.max_tokens
    if response >= limit:
        yield (
            ("rollout.max_tokens", "policy.max_length"),
            f"rollout.max_tokens must be less than policy.max_length ({limit}) to leave room for a prompt, "
            f"got {response}",
        )


def _placement(config: RunConfig) -> Violations:
    share, ahead = config.placement.share, config.contrastive_rl.max_staleness
    if config.rollout.engines_per_gpu > 1 and config.rollout.tensor_parallel > 1:
        yield (
            ("rollout.engines_per_gpu", "rollout.tensor_parallel"),
            f"rollout.engines_per_gpu must be 1 if an engine takes several GPUs (rollout.tensor_parallel="
            f"{config.rollout.tensor_parallel}), got {config.rollout.engines_per_gpu}",
        )
    if share != "none" and config.rollout.tensor_parallel > 1:
        yield (
            ("placement.share", "rollout.tensor_parallel"),
            f"rollout.tensor_parallel must be 1 if engines share their GPUs (placement.share={share}), "
            f"got {config.rollout.tensor_parallel}",
        )
    if ahead and (share == "all" or (share == "training" and config.rollout.sleep)):
        remedy = (
            "set rollout.sleep=false, or placement.share=none" if share == "training" else "placement.share=training"
        )
        yield (
            ("contrastive_rl.max_staleness", "placement.share"),
            f"contrastive_rl.max_staleness must be 0 if roles take turns (placement.share={share}), got {ahead}: "
            f"{remedy}",
        )
    yield from _transport(config)


def _transport(config: RunConfig) -> Violations:
    share, way, rollout = config.placement.share, config.rollout.weight_transport, config.rollout
    keys = ("rollout.weight_transport", "placement.share")
    gpus = -(-rollout.engines // rollout.engines_per_gpu)
    if way == "shared" and (share == "none" or config.evaluator.arch == "cpu" or gpus > config.learner.ranks):
        yield (
            keys,
            (
                "rollout.weight_transport=shared needs every engine on the GPU of a learner rank: set "
                "placement.share=training or all, with as many learner.ranks as the engines have GPUs"
            ),
        )
    if way == "broadcast" and config.evaluator.arch != "cpu" and (share != "none" or rollout.engines_per_gpu > 1):
        yield (
            keys,
            (
                "rollout.weight_transport=broadcast needs a GPU of its own for the learner and for each engine: set "
                "placement.share=none and rollout.engines_per_gpu=1"
            ),
        )


def _adapters(config: RunConfig) -> Violations:
    lora = config.learner.lora
    if lora.sync == "adapters" and not 0 < lora.rank <= SERVED_RANKS[-1]:
        yield (
            ("learner.lora.sync", "learner.lora.rank"),
            f"learner.lora.sync=adapters needs a learner.lora.rank from 1 to {SERVED_RANKS[-1]}, got {lora.rank}",
        )


def _model_shape(config: RunConfig) -> Violations:
    """The scratch model's attention must divide evenly among its heads and among tensor-parallel ranks."""
    if config.policy.model != "scratch":
        return
    shape, ranks = config.policy.scratch, config.rollout.tensor_parallel
    key = "policy.scratch"
    if shape.hidden_size % shape.heads:
        yield (
            (f"{key}.hidden_size", f"{key}.heads"),
            f"{key}.hidden_size must be a multiple of {key}.heads ({shape.heads}), got {shape.hidden_size}",
        )
    elif (shape.hidden_size // shape.heads) % 2:
        yield (
            (f"{key}.hidden_size", f"{key}.heads"),
            f"{key}.hidden_size / {key}.heads must be even (rotary embeddings turn pairs), "
            f"got {shape.hidden_size // shape.heads}",
        )
    if shape.heads % shape.kv_heads:
        yield (
            (f"{key}.kv_heads", f"{key}.heads"),
            f"{key}.heads must be a multiple of {key}.kv_heads ({shape.kv_heads}), got {shape.heads}",
        )
    if shape.heads % ranks or (shape.kv_heads % ranks and ranks % shape.kv_heads):
        yield (
            ("rollout.tensor_parallel", f"{key}.heads", f"{key}.kv_heads"),
            f"rollout.tensor_parallel must divide {key}.heads ({shape.heads}) and divide, or be a multiple of, "
            f"{key}.kv_heads ({shape.kv_heads}), got {ranks}",
        )


def _evaluator(config: RunConfig) -> Violations:
    arch = config.evaluator.arch
    if arch not in ("auto", "cpu") and not ACCELERATOR.fullmatch(arch):
        yield (
            ("evaluator.arch",),
            f"evaluator.arch must be auto, cpu or an accelerator's name as Ray has it (H200, A100), got {arch!r}",
        )
    absent = [name for name in config.evaluator.baselines if arch == "cpu" and name in ONLY_ON_GPUS]
    if absent:
        yield (
            ("evaluator.baselines", "evaluator.arch"),
            f"evaluator.baselines must not name {listed(absent)} on evaluator.arch cpu, where only GPUs have it",
        )


def _guard(config: RunConfig) -> Violations:
    checker = config.guard.checker
    is_endpoint = checker.startswith(("http://", "https://"))
    if checker not in ("", "policy") and not is_endpoint:
        yield ("guard.checker",), f"guard.checker must be empty, policy or an http(s) address, got {checker!r}"
    if is_endpoint and not config.guard.checker_model:
        yield ("guard.checker_model",), f"guard.checker_model must name the model to ask {checker} for"


def _ranks(config: RunConfig) -> Violations:
    learner = config.learner
    if learner.min_ranks > learner.ranks:
        yield (
            ("learner.min_ranks", "learner.ranks"),
            f"learner.min_ranks must be at most learner.ranks ({learner.ranks}), got {learner.min_ranks}",
        )
    size = learner.sequence_parallel
    for name, ranks in (("learner.ranks", learner.ranks), ("learner.min_ranks", learner.min_ranks)):
        if ranks % size:
            yield (
                (name, "learner.sequence_parallel"),
                f"{name} must be a multiple of learner.sequence_parallel ({size}), got {ranks}",
            )
    if size > 1 and learner.attention == "padded":
        yield (
            ("learner.attention", "learner.sequence_parallel"),
            f"learner.sequence_parallel={size} needs packed rows: set learner.attention to auto or packed",
        )


def _offload(config: RunConfig) -> Violations:
    """DeepSpeed can only off-load states that it shards."""
    learner = config.learner
    if learner.offload_optimizer != "none" and learner.zero_stage < 1:
        yield (
            ("learner.offload_optimizer", "learner.zero_stage"),
            f"learner.offload_optimizer={learner.offload_optimizer} needs learner.zero_stage 1, 2 or 3, "
            f"got {learner.zero_stage}",
        )
    if learner.offload_parameters != "none" and learner.zero_stage < 3:
        yield (
            ("learner.offload_parameters", "learner.zero_stage"),
            f"learner.offload_parameters={learner.offload_parameters} needs learner.zero_stage 3, "
            f"got {learner.zero_stage}",
        )
    if "nvme" in (learner.offload_optimizer, learner.offload_parameters) and not learner.nvme_path:
        yield (
            ("learner.nvme_path", "learner.offload_optimizer", "learner.offload_parameters"),
            "learner.nvme_path must name a folder on a fast local disk if learner.offload_optimizer or "
            "learner.offload_parameters is nvme, got ''",
        )


def _agreement(config: RunConfig) -> Violations:
    if config.evaluator.baselines and "eager" not in config.evaluator.baselines:
        yield (
            ("evaluator.baselines",),
            f"evaluator.baselines must contain eager, the reference of every speed-up, got "
            f"[{', '.join(config.evaluator.baselines)}]",
        )
    if config.buffer.exemplars > config.buffer.capacity:
        yield (
            ("buffer.exemplars", "buffer.capacity"),
            f"buffer.exemplars must be at most buffer.capacity ({config.buffer.capacity}), "
            f"got {config.buffer.exemplars}",
        )
    held_out, sft = config.tasks.held_out, config.sft
    if sft.min_entropy and not (sft.entropy_samples and (held_out.share or held_out.tasks or held_out.source)):
        yield (
            ("sft.min_entropy", "sft.entropy_samples", "tasks.held_out.share"),
            f"sft.min_entropy needs held-out prompts to measure on: set tasks.held_out and a positive "
            f"sft.entropy_samples, or sft.min_entropy=0, got {sft.min_entropy}",
        )
    rl = config.contrastive_rl
    if "contrastive_rl" in config.schedule.phases and config.rollout.temperature < LOWEST_TEMPERATURE:
        yield (
            ("rollout.temperature", "schedule.phases"),
            f"rollout.temperature must be at least {LOWEST_TEMPERATURE} while schedule.phases has contrastive_rl, "
            f"which needs different samples of known probability, got {config.rollout.temperature}",
        )
    if rl.minibatches > rl.tasks_per_step * rl.group_size:
        yield (
            ("contrastive_rl.minibatches",),
            f"contrastive_rl.minibatches must be at most tasks_per_step x group_size "
            f"({rl.tasks_per_step * rl.group_size} rollouts), got {rl.minibatches}",
        )


def _stall(config: RunConfig) -> Violations:
    """A call that is allowed to take its time is no stall."""
    key, seconds = longest_wait(config)
    if 0 < config.stall_minutes * 60 < seconds:
        yield (
            ("stall_minutes", key),
            f"stall_minutes must be 0 (never) or at least {-(-seconds // 60):g}, since {key} lets a run be without a "
            f"move for so long, got {config.stall_minutes:g}",
        )
