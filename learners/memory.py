"""How much memory a policy takes where it is trained, before it is loaded: arithmetic over a model without weights.

Weights are float32 and computed with in bfloat16, and frozen ones held in that, as `LearnerEngine` does. States of the
optimiser, their shards and what is moved to the host are those of DeepSpeed 0.19; activations are what a decoder layer
of Qwen2's kind keeps for its backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from configs.schema import LearnerConfig, LoraConfig
from learners.deepspeed_config import BUCKET_ELEMENTS
from learners.policy import PolicyError
from learners.scoring import CHUNK_ELEMENTS, most_kept

_FULL, _HALF = 4, 2  # bytes of a float32 and of a bfloat16
_LIVE_ELEMENTS = 1_000_000_000  # gathered at once under ZeRO-3 (DeepSpeed's `stage3_max_live_parameters`)
_OF_A_LOGIT = 18  # bytes at a CPU's peak: in both precisions, its gradient, and the distribution of its entropy


@dataclass(frozen=True)
class PolicyShape:
    """What of a causal language model decides its memory. Counts of elements; `adapted`: inputs and outputs of all
    linear layers that adapters go on; `key_values` and `hidden` are of one token in one layer."""

    parameters: int
    adapted: int
    layers: int
    hidden: int
    intermediate: int
    key_values: int
    vocabulary: int

    @property
    def cache_bytes(self) -> int:
        """Of one token in a rollout engine's cache of keys and values."""
        return _HALF * self.layers * self.key_values


@dataclass(frozen=True)
class LearnerMemory:
    """Bytes on one rank's device at the peak of a step, by what they are for; `host`: in the memory of its host
    instead, of what is off-loaded."""

    weights: int
    gradients: int
    optimizer: int
    reference: int
    activations: int
    host: int = 0

    @property
    def total(self) -> int:
        """All of them on the device."""
        return self.weights + self.gradients + self.optimizer + self.reference + self.activations


def policy_shape(model: str | PretrainedConfig) -> PolicyShape:
    """The shape of a Hugging Face model, by its folder, id or configuration. Raises PolicyError where it has none."""
    try:
        config = AutoConfig.from_pretrained(model) if isinstance(model, str) else model
        with torch.device("meta"):
            empty: Any = AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise PolicyError(f"policy.model: {model} has no configuration that can be read ({reason[:200]})") from error
    text = config.get_text_config()
    head = empty.get_output_embeddings()
    linear = [one for one in empty.modules() if isinstance(one, nn.Linear) and one is not head]
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return PolicyShape(
        parameters=sum(one.numel() for one in empty.parameters()),
        adapted=sum(one.in_features + one.out_features for one in linear),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        intermediate=text.intermediate_size,
        key_values=2 * head_size * (getattr(text, "num_key_value_heads", None) or text.num_attention_heads),
        vocabulary=text.vocab_size,
    )


def trainable(shape: PolicyShape, lora: LoraConfig) -> int:
    """Elements that are trained: the adapters', or all."""
    return lora.rank * shape.adapted if lora.rank else shape.parameters


def learner_memory(
    shape: PolicyShape, config: LearnerConfig, *, responses: int, reference: bool, device_bytes: int = 0
) -> LearnerMemory:
    """Of a step on micro-batches of `config.micro_batch_tokens`, of which at most `responses` are scored at once.
    `reference`: a KL term asks for a reference policy, a copy of the adapters where there are any. `device_bytes`: of
    the GPU's memory, 0 for a CPU."""
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
    # Stage 1 keeps whole gradients until they are reduced; 2 and 3 one bucket of them, and each its own share.
    gradients = (_FULL * trained if stage < 2 else 0) + bucket
    of_states = _FULL * trained // share  # each of the two moments, the master weights and the rank's gradients
    optimizer = (3 if stage else 2) * of_states
    if config.offload_optimizer == "none":
        gradients += of_states if stage else 0
    else:
        # Gradients lie there twice, as they are summed and as they are stepped with, and the new weights until copied.
        host += (3 + (stage < 3) + (2 if config.offload_optimizer == "cpu" else 0)) * of_states
        optimizer = 0
    activations = _activations(shape, config) + _logits(responses * shape.vocabulary, held, device_bytes)
    frozen_copy = held * (trained if config.lora.rank else shape.parameters) if reference else 0
    if config.offload_reference:
        # Its own passes need no gradients and next to no activations.
        host, frozen_copy = host + frozen_copy, max(frozen_copy - gradients - activations, 0)
    return LearnerMemory(weights + casts, gradients, optimizer, frozen_copy, activations, host)


def _logits(elements: int, width: int, device_bytes: int) -> int:
    """Bytes of up to so many logits at the peak: of a chunk, and of the others as far as they are kept."""
    if not device_bytes:
        return _OF_A_LOGIT * min(elements, CHUNK_ELEMENTS["cpu"])
    chunk = min(elements, CHUNK_ELEMENTS["cuda"])
    kept = max(min(elements, most_kept(device_bytes, width)) - chunk, 0)
    return width * (3 * chunk + kept)  # a chunk's own, their gradients, and as much to spare


def _activations(shape: PolicyShape, config: LearnerConfig) -> int:
    """Bytes that a micro-batch keeps for its backward pass.

    Of a layer, in units of a token: two norms keep what they are given and what they make of it; every linear layer its
    own cast input; rotary embedding and attention queries, keys, values and output; the gate its parts."""
    unit = _HALF if config.autocast else _FULL
    layer = 2 * 2 * _FULL * shape.hidden + unit * (11 * shape.hidden + 5 * shape.key_values // 2)
    layer += unit * 4 * shape.intermediate
    kept = shape.layers * _FULL * shape.hidden + layer if config.gradient_checkpointing else shape.layers * layer
    return config.micro_batch_tokens * kept
