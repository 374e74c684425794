"""Estimates how much memory each role of a run needs, and says which key to change if that is too much.

Sizes come from the policy's configuration (`learners.memory`), the libraries' own share from measurements.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from rich.table import Table
from transformers import Qwen2Config

from configs.frozen import learns
from configs.load import ConfigError
from configs.schema import RunConfig
from learners.errors import LearnerError
from learners.memory import PolicyShape, learner_memory, policy_shape
from learners.policy_files import fetch_policy
from learners.scoring import has_bfloat16
from learners.sequence_parallel import require_heads
from orchestration.fleet.placement import BUILDER

_GIB = 2**30
_SPARE = 0.05  # share of an estimate that is added for fragments and buffers of collectives
_LIBRARIES_BYTES = 1 << 30  # of a process with torch and its libraries, on a CPU or a GPU alike
_ENGINE_BYTES = 2 << 30  # that a GPU's engine needs for its largest batch of prompts
# Gigabytes by Ray's names of accelerators; the largest model of each name (NVIDIA's data sheets).
_GPU_GB = {
    **dict.fromkeys(("H200", "GH200"), 141),
    **dict.fromkeys(("B200", "GB200"), 186),
    **dict.fromkeys(("B300", "GB300"), 279),
    **dict.fromkeys(("H100", "A100", "A800", "H800"), 80),
    "H20": 96,
    **dict.fromkeys(("L40", "L40S", "A40"), 48),
    **dict.fromkeys(("L4", "A10", "A10G", "A30", "RTX-3090", "RTX-4090"), 24),
    **dict.fromkeys(("V100", "RTX-5090"), 32),
    **dict.fromkeys(("T4", "P100"), 16),
}


@dataclass(frozen=True)
class RoleMemory:
    """Bytes that each of `count` processes of a role needs (`needed`) and may have (`limit`, 0 if unknown).

    `parts` says what they are for, `remedy` what to do if they are too many.
    """

    role: str
    count: int
    needed: int
    limit: int
    parts: str
    remedy: str
    host: int = 0
    """Bytes of host memory, if `needed` is GPU memory."""
    host_use: str = ""
    host_remedy: str = ""
    taken: int = 0
    """Bytes of a GPU that the process reserves, needed or not: a rollout engine's whole cache."""
    resting: int = 0
    """Bytes of a GPU that the process keeps while others have their turn there."""


def memory_plan(config: RunConfig) -> list[RoleMemory]:
    """One entry a role. Raises PolicyError if the policy's configuration cannot be read, and ConfigError if ranks that
    are to share its heads cannot."""
    on_gpu = config.evaluator.arch != "cpu"
    device = _gpu_bytes(config.evaluator.arch) if on_gpu else _host_bytes(config)
    shape = _shape(config)
    if learns(config):
        try:
            require_heads(shape.heads, config.learner.sequence_parallel)
        except LearnerError as error:
            raise ConfigError(str(error)) from error
    return [
        _learner(config, shape, device, on_gpu=on_gpu),
        _engine(config, shape, device, on_gpu=on_gpu),
        _evaluator(config, device),
        *([_builder(config, device)] if on_gpu and config.placement.share == "all" else []),
    ]


def refuse_what_cannot_fit(config: RunConfig, plan: Sequence[RoleMemory]) -> None:
    """Raises ConfigError for a role that does not fit; the message names the role and the key to change."""
    for role in plan:
        if role.limit and role.needed > role.limit:
            raise ConfigError(
                f"{role.role}: each needs about {role.needed / _GIB:.1f} GiB ({role.parts}), and has "
                f"{role.limit / _GIB:.1f}: {role.remedy}"
            )
    for role in plan:
        if role.host and (limit := _host_bytes(config)) and role.host * role.count > limit:
            raise ConfigError(
                f"{role.role}: {role.host_use} needs about {role.host * role.count / _GIB:.1f} GiB of the host, which "
                f"has {limit / _GIB:.1f}: set {role.host_remedy}"
            )
    _refuse_what_cannot_share(config, plan)
    total = sum(role.needed * role.count for role in plan)
    if config.evaluator.arch == "cpu" and (limit := _host_bytes(config)) and total > limit:
        largest = max(plan, key=lambda role: role.needed * role.count)
        raise ConfigError(
            f"the roles of one host need about {total / _GIB:.1f} GiB, and it has {limit / _GIB:.1f}: most is for the "
            f"{largest.role}: {largest.remedy}"
        )


def _refuse_what_cannot_share(config: RunConfig, plan: Sequence[RoleMemory]) -> None:
    """Raises ConfigError if the roles that are on one GPU at the same time do not fit on it together."""
    learner, engine, evaluator, *builders = plan
    share, device = config.placement.share, learner.limit
    if config.evaluator.arch == "cpu" or not device:
        return
    engines = config.rollout.engines_per_gpu * engine.taken
    if share == "none":
        if engines > device and config.rollout.engines_per_gpu > 1:
            raise ConfigError(
                f"rollout.engines_per_gpu={config.rollout.engines_per_gpu}: they need about {engines / _GIB:.1f} GiB, "
                f"and a GPU has {device / _GIB:.1f}: lower rollout.kv_cache_gib"
            )
        return
    others = evaluator.needed if share == "all" else 0
    for builder in builders:  # every builder keeps its memory for looks at programs
        others += -(-builder.count // evaluator.count) * builder.needed
    together = learner.needed + engines + others
    remedy = "set rollout.sleep=true, or lower "
    if config.rollout.sleep:
        together, remedy = max(learner.needed, learner.resting + engines) + others, "lower "
    if together > device:
        knob = "rollout.kv_cache_gib" if config.rollout.engines_per_gpu > 1 else "rollout.gpu_memory_utilization"
        split = f"learner {learner.needed / _GIB:.1f}, engines {engines / _GIB:.1f}, judging {others / _GIB:.1f}"
        raise ConfigError(
            f"placement.share={share}: the roles of one GPU need about {together / _GIB:.1f} GiB at once ({split}), "
            f"and it has {device / _GIB:.1f}: {remedy}{knob}, learner.micro_batch_tokens or evaluator.builders"
        )


def memory_table(plan: Sequence[RoleMemory]) -> Table:
    """The plan for a terminal."""
    table = Table("role", "processes", "GiB each", "of", "for", box=None)
    for role in plan:
        limit = f"{role.limit / _GIB:.1f}" if role.limit else "?"
        table.add_row(role.role, str(role.count), f"{role.needed / _GIB:.1f}", limit, role.parts)
    return table


def _learner(config: RunConfig, shape: PolicyShape, device: int, *, on_gpu: bool) -> RoleMemory:
    if not learns(config):
        return RoleMemory("learner", 0, 0, device, "nothing is learnt", "")
    in_half = config.learner.autocast and has_bfloat16("cuda" if on_gpu else "cpu")
    longest = -(-config.policy.max_length // config.learner.sequence_parallel)  # of one row, on one rank
    fewer = "lower learner.micro_batch_tokens"
    if longest > config.learner.micro_batch_tokens:
        fewer = "lower policy.max_length, or raise learner.sequence_parallel with learner.ranks"
    tokens = max(longest, config.learner.micro_batch_tokens)
    # A row longer than a micro-batch has one response.
    responses = max(config.learner.micro_batch_tokens, min(longest, config.rollout.max_tokens))
    learner = replace(config.learner, autocast=in_half, micro_batch_tokens=tokens)
    trains = "contrastive_rl" in config.schedule.phases
    memory = learner_memory(
        shape,
        learner,
        responses=responses,
        reference=trains and config.contrastive_rl.kl > 0,
        device_bytes=device if on_gpu else 0,
    )
    parts = {
        "weights": memory.weights,
        "gradients": memory.gradients,
        "optimiser": memory.optimizer,
        "reference": memory.reference,
        "activations": memory.activations,
    }
    parts |= {} if on_gpu else {"off-loaded": memory.host}
    adapters = "train adapters (learner.lora.rank)"
    states = f"raise learner.zero_stage and learner.ranks, or {adapters}"
    remedies = {
        "off-loaded": "set learner.offload_optimizer=nvme",
        "reference": f"set contrastive_rl.kl=0, or {adapters}, of which the copy is small",
        "activations": fewer
        + ("" if learner.gradient_checkpointing else ", or set learner.gradient_checkpointing=true"),
    }
    if on_gpu:
        remedies |= {
            "weights": f"{states}, or set learner.offload_parameters=cpu with learner.zero_stage=3",
            "optimiser": f"{states}, or set learner.offload_optimizer=cpu",
            "reference": f"set learner.offload_reference=true, or {remedies['reference']}",
        }
    largest = max(parts, key=lambda name: parts[name])
    needed = _LIBRARIES_BYTES + int((1 + _SPARE) * sum(parts.values()))
    listed, host = _list_parts(parts), max(memory.host, memory.loading) if on_gpu else 0
    listed += f"; in the host's memory {host / _GIB:.1f}" if host else ""
    use = ("off-loading", "learner.offload_optimizer=nvme or none")
    if memory.loading > memory.host:
        use = ("loading", "learner.zero_stage=3, so that each rank loads its own part, or take fewer ranks on it")
    remedy, resting = remedies.get(largest, states), needed - int((1 + _SPARE) * memory.activations)
    return RoleMemory("learner", learner.ranks, needed, device, listed, remedy, host, *use, resting=resting)


def _engine(config: RunConfig, shape: PolicyShape, device: int, *, on_gpu: bool) -> RoleMemory:
    """The least that an engine needs: with a cache for one sequence of full length."""
    rollout, policy = config.rollout, config.policy
    width = {"bfloat16": 2, "float16": 2, "float32": 4}[policy.dtype]
    weights = width * shape.parameters // rollout.tensor_parallel
    token = shape.cache_bytes * width // 2 // rollout.tensor_parallel
    taken, cache = 0, int(rollout.kv_cache_gib * _GIB)
    if on_gpu and rollout.engines_per_gpu == 1:
        limit = int(device * rollout.gpu_memory_utilization)
        needed = weights + _ENGINE_BYTES + token * policy.max_length
        room, taken = max(limit - weights - _ENGINE_BYTES, 0) // token, limit
        remedy = "raise rollout.gpu_memory_utilization or rollout.tensor_parallel, or lower policy.max_length"
    else:
        limit = device
        needed, room = weights + (_ENGINE_BYTES if on_gpu else _LIBRARIES_BYTES) + cache, cache // token
        taken = needed
        remedy = "lower rollout.kv_cache_gib, or take a smaller policy.model"
        if room < policy.max_length:
            raise ConfigError(
                f"rollout: a cache of {rollout.kv_cache_gib} GiB holds {room} tokens, and a sequence has up to "
                f"{policy.max_length}: raise rollout.kv_cache_gib, or lower policy.max_length"
            )
    sequences = f"a cache for {room // policy.max_length} sequences of full length ({rollout.max_concurrent} at once)"
    parts = f"{_list_parts({'weights': weights})}, {sequences if limit else 'cache for one sequence'}"
    return RoleMemory("rollout", rollout.engines * rollout.tensor_parallel, needed, limit, parts, remedy, taken=taken)


def _evaluator(config: RunConfig, device: int) -> RoleMemory:
    """Two runners. Their programs may take up to a limit, which few come near and which is not counted."""
    limits, on_gpu = config.evaluator.limits, config.evaluator.arch != "cpu"
    parts = f"without two programs of at most {limits.gpu_memory_gib if on_gpu else limits.memory_gib:g} GiB"
    remedy = "lower evaluator.workers"
    return RoleMemory("evaluator", config.evaluator.workers, 2 * _LIBRARIES_BYTES, device, parts, remedy)


def _builder(config: RunConfig, device: int) -> RoleMemory:
    """A builder that looks at programs on their GPU needs memory for the program's process and for its own."""
    limits = config.evaluator.limits
    parts = f"without a program of at most {limits.gpu_memory_gib:g} GiB"
    return RoleMemory(BUILDER, config.evaluator.builders, _LIBRARIES_BYTES, device, parts, "lower evaluator.builders")


def _shape(config: RunConfig) -> PolicyShape:
    if config.policy.model != "scratch":
        return policy_shape(fetch_policy(config.policy.model, weights=False))
    scratch = config.policy.scratch
    return policy_shape(
        Qwen2Config(
            vocab_size=scratch.vocab_size,
            hidden_size=scratch.hidden_size,
            intermediate_size=scratch.intermediate_size,
            num_hidden_layers=scratch.layers,
            num_attention_heads=scratch.heads,
            num_key_value_heads=scratch.kv_heads,
            tie_word_embeddings=True,
        )
    )


def _gpu_bytes(arch: str) -> int:
    """Memory of this host's GPU if it is of that name, else of the kind by the table; 0 if neither is known."""
    if torch.cuda.is_available() and arch.replace("-", " ") in torch.cuda.get_device_name(0):
        return int(torch.cuda.get_device_properties(0).total_memory)
    return int(_GPU_GB.get(arch, 0) * 1e9)


def _host_bytes(config: RunConfig) -> int:
    """Memory of this host if the run starts a Ray of its own; 0 on a cluster."""
    if config.ray.address or os.environ.get("RAY_ADDRESS"):
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _list_parts(parts: dict[str, int]) -> str:
    return ", ".join(f"{name} {amount / _GIB:.1f}" for name, amount in parts.items() if amount)
