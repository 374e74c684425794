"""Sequence parallelism: the ranks of a group share each packed row, so many tokens each.

All but attention works on single tokens. Around attention DeepSpeed exchanges tokens for heads, so that each rank
attends over the whole row with some of the heads (Ulysses, Jacobs et al., arXiv 2309.14509). Gradients need no care of
their own: each rank has those of its tokens' part, and they are summed over all ranks anyway. Never plans what a row
holds.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from learners.attention import Heads, heads_of, packed_attention
from learners.batching import Batch
from learners.errors import LearnerError
from learners.row_parts import Part

NAME = "warpsmith_sequence_parallel"


class SequenceGroup:
    """The ranks with which this one shares rows: neighbours, as many as `size`."""

    def __init__(self, config: PretrainedConfig, size: int, rank: int, world_size: int, timeout: float) -> None:
        """`config`: the policy's. DeepSpeed must have been initialised. All ranks must call it. Raises LearnerError if
        the policy's heads cannot be divided among the group."""
        heads = heads_of(config)
        require_heads(heads, size)
        self._size, self._place = size, rank % size
        starts = range(0, world_size, size)
        groups = [
            distributed.new_group([*range(start, start + size)], timeout=timedelta(seconds=timeout)) for start in starts
        ]
        self._group = groups[rank // size]
        ulysses = importlib.import_module("deepspeed.runtime.sequence_parallel.ulysses_sp").UlyssesSPAttentionHF
        self._attention = ulysses(
            attn=packed_attention if torch.cuda.is_available() else ALL_ATTENTION_FUNCTIONS["sdpa"],
            batch_size=1,
            attn_head_count=heads.queries,
            attn_head_size=heads.size,
            kv_head_count=heads.keys,
            num_hidden_layers=config.get_text_config().num_hidden_layers,
            process_group=self._group,
            seq_length_is_variable=True,
        )

    def part_of(self, batch: Batch) -> Batch:
        """This rank's tokens of a packed batch, whose mask or layout stays that of the whole row. What is compared with
        log-probabilities stays whole, too."""
        length = batch.input_ids.shape[1] // self._size
        start = self._place * length
        assert batch.position_ids is not None
        own = ((batch.predictors >= start) & (batch.predictors < start + length)).nonzero()[:, 0]
        return replace(
            batch,
            input_ids=batch.input_ids[:, start : start + length],
            position_ids=batch.position_ids[:, start : start + length],
            predictors=batch.predictors[own] - start,
            targets=batch.targets[own],
            part=Part(own, len(batch.targets), self._attention, self._group),
        )


def require_heads(heads: Heads, size: int) -> None:
    """Raises LearnerError if `size` ranks cannot share a policy's heads."""
    if heads.queries % size or (heads.keys % size and size % heads.keys):
        raise LearnerError(
            f"learner.sequence_parallel={size}: so many ranks cannot share the policy's {heads.queries} attention "
            f"heads and {heads.keys} heads of keys and values: set it to a divisor of both"
        )


def use_sequence_parallel_attention(model: PreTrainedModel) -> None:
    """Makes `model` compute attention over the whole row of which each call has a part."""
    AttentionInterface.register(NAME, _exchanged)
    model.set_attn_implementation(NAME)


def _exchanged(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    part: Part,
    **others: Any,
) -> tuple[Tensor, None]:
    """The signature is that of transformers' attention functions; `part` is that of the batch."""
    # Under autocast rotary embeddings return float32, which would be exchanged at twice the width.
    query, key = query.to(value.dtype), key.to(value.dtype)
    return part.attention(module, query, key, value, attention_mask, **others)
