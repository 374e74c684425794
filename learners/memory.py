"""Predicts how much memory training takes, before the policy is loaded: arithmetic over a model without weights.

As in `LearnerEngine`, trained weights are float32, products are computed in bfloat16, and frozen weights are bfloat16.
States of the optimiser, their shards and off-loaded states are those of DeepSpeed 0.19. Activations are those that a
decoder layer like Qwen2's keeps for its backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from configs.schema import LearnerConfig, LoraConfig
from learners.attention import Heads, heads_of
from learners.deepspeed_config import BUCKET_ELEMENTS
from learners.scoring import CHUNK_ELEMENTS, most_kept
from learners.tokenizing import PolicyError

_FULL, _HALF = 4, 2  # bytes of a float32 and of a bfloat16
_LIVE_ELEMENTS = 1_000_000_000  # weights gathered at once under ZeRO-3 (DeepSpeed's `stage3_max_live_parameters`)
_LOGIT_BYTES = 18  # of one logit at a CPU's peak: both precisions, its gradient, and the entropy's distribution


@dataclass(frozen=True)
class PolicyShape:
    """The numbers of a causal language model that decide its memory, in elements, and its `heads`.

    `adapted`: inputs plus outputs of all linear layers that get adapters. `key_values` and `hidden`: of one token in
    one layer.
    """

    parameters: int
    adapted: int
    layers: int
    hidden: int
    intermediate: int
    key_values: int
    vocabulary: int
    heads: Heads

    @property
    def cache_bytes(self) -> int:
        """Bytes of one token in a rollout engine's cache of keys and values."""
        return _HALF * self.layers * self.key_values


@dataclass(frozen=True)
class LearnerMemory:
    """Bytes on one rank's device at the peak of a step, by purpose. `host`: bytes of off-loaded states, in the memory
    of the host. `loading`: what the policy takes there while the rank loads it for a GPU."""

    weights: int
    gradients: int
    optimizer: int
    reference: int
    activations: int
    host: int = 0
    loading: int = 0

    @property
    def total(self) -> int:
        """All bytes on the device."""
        return self.weights + self.gradients + self.optimizer + self.reference + self.activations


def policy_shape(model: str | PretrainedConfig) -> PolicyShape:
    """The shape of a Hugging Face model, from its folder, id or configuration. Raises PolicyError if it has none."""
    try:
        config = AutoConfig.from_pretrained(model) if isinstance(model, str) else model
        with torch.device("meta"):
            empty: Any = AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise PolicyError(f"policy.model: {model} has no configuration that can be read ({reason[:200]})") from error
    text = config.get_text_config()
    head = empty.get_output_embeddings()
    linear = [layer for layer in empty.modules() if isinstance(layer, nn.Linear) and layer is not head]
    heads = heads_of(config)
    return PolicyShape(
        parameters=sum(parameter.numel() for parameter in empty.parameters()),
        adapted=sum(layer.in_features + layer.out_features for layer in linear),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        intermediate=text.intermediate_size,
        key_values=2 * heads.size * heads.keys,
        vocabulary=text.vocab_size,
        heads=heads,
    )


def trainable(shape: PolicyShape, lora: LoraConfig) -> int:
    """The number of trained elements: those of the adapters, or all."""
    return lora.rank * shape.adapted if lora.rank else shape.parameters


def learner_memory(
    shape: PolicyShape, config: LearnerConfig, *, responses: int, reference: bool, device_bytes: int = 0
) -> LearnerMemory:
    """The memory of a step on micro-batches of `config.micro_batch_tokens` tokens, at most `responses` of them response
    tokens.

    `reference`: a KL term needs a reference policy, which is a copy of the adapters if there are any. `device_bytes`:
    of the GPU's memory, 0 for a CPU.
    """
    trained = trainable(shape, config.lora)
    frozen = shape.parameters if config.lora.rank else 0
    stage, ranks = config.zero_stage, config.ranks
    share = ranks if stage else 1
    held = _HALF if config.autocast else _FULL
    weights = held * frozen + _FULL * trained
    casts = _HALF * trained if config.autocast and stage < 3 else 0
    host = 0
    if stage == 3:
        own = weights // ranks
        host += own if config.offload_parameters == "cpu" else 0
        weights = min(weights, (held if frozen else _FULL) * _LIVE_ELEMENTS)
        weights += own if config.offload_parameters == "none" else 0
    bucket = 2 * _FULL * min(trained, BUCKET_ELEMENTS) if stage else 0
    # Stage 1 keeps whole gradients until they are reduced. Stages 2 and 3 keep one bucket, and each rank its share.
    gradients = (_FULL * trained if stage < 2 else 0) + bucket
    of_states = _FULL * trained // share  # each of the two moments, the master weights and the rank's gradients
    optimizer = (3 if stage else 2) * of_states
    if config.offload_optimizer == "none":
        gradients += of_states if stage else 0
    else:
        # The host holds gradients twice, for the sum and for the step, and the new weights until they are copied.
        host += (3 + (stage < 3) + (2 if config.offload_optimizer == "cpu" else 0)) * of_states
        optimizer = 0
    activations = _activations(shape, config) + _logits(responses * shape.vocabulary, held, device_bytes)
    frozen_copy = held * (trained if config.lora.rank else shape.parameters) if reference else 0
    if stage == 3 and not config.lora.rank:
        # Shards, of which a layer's weights are gathered when the trained policy's are not.
        frozen_copy //= ranks
        if config.offload_reference:
            host, frozen_copy = host + frozen_copy, 0
    elif config.offload_reference:
        # The passes of the reference policy need no gradients and hardly any activations.
        host, frozen_copy = host + frozen_copy, max(frozen_copy - gradients - activations, 0)
    return LearnerMemory(
        weights + casts, gradients, optimizer, frozen_copy, activations, host, _loading(shape, config, held, frozen)
    )


def _loading(shape: PolicyShape, config: LearnerConfig, held: int, frozen: int) -> int:
    """Bytes of the host while a rank loads: the whole policy, or under ZeRO-3 its shards that stay there, beside a
    rank's part of the one weight that rank 0 holds, in two precisions. The embeddings are the largest weight."""
    width = held if frozen else _FULL
    if config.zero_stage < 3:
        return width * shape.parameters
    kept = width * shape.parameters // config.ranks if config.offload_parameters == "cpu" else 0
    return kept + 2 * _FULL * shape.vocabulary * shape.hidden // config.ranks


def _logits(elements: int, width: int, device_bytes: int) -> int:
    """Bytes of up to `elements` logits of `width` bytes at the peak: those of one chunk, and of all that are kept."""
    if not device_bytes:
        return _LOGIT_BYTES * min(elements, CHUNK_ELEMENTS["cpu"])
    chunk = min(elements, CHUNK_ELEMENTS["cuda"])
    kept = max(min(elements, most_kept(device_bytes, width)) - chunk, 0)
    return width * (3 * chunk + kept)  # the chunk's logits, their gradients, and the same again in reserve


def _activations(shape: PolicyShape, config: LearnerConfig) -> int:
    """Bytes that a micro-batch keeps for its backward pass.

    Per layer and token: two norms keep their input and output; every linear layer keeps its own cast input; rotary
    embedding and attention keep queries, keys, values and output; the gate keeps its parts.
    """
    unit = _HALF if config.autocast else _FULL
    layer = 2 * 2 * _FULL * shape.hidden + unit * (11 * shape.hidden + 5 * shape.key_values // 2)
    layer += unit * 4 * shape.intermediate
    kept = shape.layers * _FULL * shape.hidden + layer if config.gradient_checkpointing else shape.layers * layer
    return config.micro_batch_tokens * kept
