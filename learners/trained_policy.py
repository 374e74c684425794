"""The policy as the learner trains it: loaded, frozen under adapters, with packed attention and compiled layers.

Never wraps it in DeepSpeed, and never trains it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from peft import PeftModel
from torch import Tensor, distributed
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from configs.schema import LearnerConfig
from learners.attention import has_flash, supports_packing, use_packed_attention
from learners.errors import LearnerError
from learners.frozen import freeze, frozen_dtype
from learners.lora import attach_lora
from learners.policy import compile_layers, load_policy, switch_dropout_off
from learners.policy_files import fetch_policy
from learners.sequence_parallel import use_sequence_parallel_attention
from learners.sharding import Sharder, load_empty
from learners.tokenizing import load_tokenizer

Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase]


@dataclass(frozen=True)
class TrainedPolicy:
    """`adapters`: None if all weights are trained. `is_packed`: the rows of a micro-batch stand one behind the other
    (see `learners.batching`). `is_shared`: several ranks share a row. `is_compiled`: torch compiles its layers."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    adapters: PeftModel | None
    is_packed: bool
    is_shared: bool
    is_compiled: bool

    def equip(self, model: PreTrainedModel, device: torch.device) -> None:
        """Gives a copy of the policy the same attention and compiled layers."""
        _equip(model, device, is_packed=self.is_packed, is_shared=self.is_shared, is_compiled=self.is_compiled)


def load_for_training(
    config: LearnerConfig, policy: str | Path | Loaded, device: torch.device, sharder: Sharder | None = None
) -> TrainedPolicy:
    """Loads the policy (see `fetch_policy`; a model that is loaded already is taken as it is) and prepares it.

    Dropout is off (`switch_dropout_off`). Weights are float32. Under adapters they are loaded in the precision in which
    they were saved, and `freeze` then gives each weight its own. With a `sharder` this rank loads its shards alone.
    Draws the adapters from torch's generator. Raises PolicyError if the policy does not load, LearnerError if its rows
    cannot be packed although the configuration asks for it.
    """
    model, tokenizer = policy if isinstance(policy, tuple) else _load(config, fetch_policy(str(policy)), sharder)
    switch_dropout_off(model)
    if config.lora.rank:
        freeze(model, autocast=config.autocast)
    is_packed, is_compiled = _packs(config, model, device), _compiles(config, device)
    is_shared = config.sequence_parallel > 1
    _equip(model, device, is_packed=is_packed, is_shared=is_shared, is_compiled=is_compiled)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    adapters = attach_lora(model, config.lora, config.autocast) if config.lora.rank > 0 else None
    return TrainedPolicy(model, tokenizer, adapters, is_packed, is_shared, is_compiled)


def _load(config: LearnerConfig, model: str, sharder: Sharder | None) -> Loaded:
    precision: str | torch.dtype = "auto" if config.lora.rank else torch.float32
    if sharder is None or (found := load_empty(model, precision)) is None:
        return load_policy(model, precision)
    tokenizer = load_tokenizer(model)
    empty, files = found
    held = partial(frozen_dtype, autocast=config.autocast) if config.lora.rank else _float32
    sharder.fill(empty, files.read(empty, is_reader=distributed.get_rank() == 0), held)
    return empty, tokenizer


def _float32(_weight: Tensor) -> torch.dtype:
    return torch.float32


def _equip(
    model: PreTrainedModel, device: torch.device, *, is_packed: bool, is_shared: bool, is_compiled: bool
) -> None:
    if is_shared:
        use_sequence_parallel_attention(model)
    elif is_packed and device.type == "cuda":
        use_packed_attention(model)
    if is_compiled:
        compile_layers(model)


def _compiles(config: LearnerConfig, device: torch.device) -> bool:
    """Whether layers are compiled: on GPUs, unless ZeRO-3 gathers their weights by hooks that a compiler cannot see, or
    ranks exchange tokens in the middle of them."""
    return config.compile and device.type == "cuda" and config.zero_stage < 3 and config.sequence_parallel == 1


def _packs(config: LearnerConfig, model: PreTrainedModel, device: torch.device) -> bool:
    """Whether rows are packed. Raises LearnerError if they cannot be although the configuration asks for it."""
    wanted, on_gpu = config.attention, device.type == "cuda"
    possible = supports_packing(model.config)
    if on_gpu:
        possible = possible and config.autocast and has_flash(model.config, device)
    is_shared = config.sequence_parallel > 1
    is_demanded = wanted == "packed" or is_shared
    if is_demanded and not possible:
        key, other = ("learner.sequence_parallel", 1) if is_shared else ("learner.attention=packed", "padded")
        raise LearnerError(
            f"{key} needs a model of plain full attention, and on a GPU learner.autocast and "
            f"heads that FlashAttention serves (compute capability 8.0, sizes of 8 to 256): set it to {other}"
        )
    return possible and (is_demanded or (wanted == "auto" and on_gpu))
