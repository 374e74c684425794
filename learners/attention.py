"""Attention over packed sequences: many prompts, each with several responses, in one row without padding.

FlexAttention computes only blocks in which some token may see another, so a prompt that responses share costs what it
is long, once. It has no backward pass without a GPU (torch 2.13): there a dense mask says the same.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

NAME = "warpsmith_packed"
BLOCK = 128  # tokens: packed rows are filled up to a multiple, which FlexAttention's blocks are of
_PLAIN = "full_attention"
_WHOLE = 1 << 15  # tokens up to which a mask is computed whole, a byte for each pair, before it is cut into blocks


def supports_packing(config: PretrainedConfig) -> bool:
    """Whether every layer attends to all that came before: a window or chunk would count the other responses in."""
    text = config.get_text_config()
    layers = getattr(text, "layer_types", None) or [_PLAIN]
    windowed = getattr(text, "sliding_window", None) or getattr(text, "attn_logit_softcapping", None)
    return set(layers) == {_PLAIN} and not windowed


def use_packed_attention(model: PreTrainedModel) -> None:
    """From now on `model` takes a `block_mask` as attention mask."""
    AttentionInterface.register(NAME, _packed_attention)
    model.set_attn_implementation(NAME)


def packed_mask(segments: Tensor) -> Tensor | BlockMask:
    """Which token may see which: those before it of its own prompt, and of its own response.

    segments: [2, length], the prompt that a token belongs to, and which of its responses, from 1; 0 is the prompt
    itself. Padding is a prompt of its own. Returns what a model on the segments' device takes: a BlockMask on a GPU,
    otherwise a dense mask.
    """
    return block_mask(segments) if segments.device.type == "cuda" else dense_mask(segments)


def dense_mask(segments: Tensor) -> Tensor:
    """The same as [1, 1, length, length], true where attention is allowed."""
    places = torch.arange(segments.shape[1])
    return _allowed(segments, places[:, None], places[None, :])[None, None]


def block_mask(segments: Tensor) -> BlockMask:
    """The same for a model that uses packed attention."""

    def allowed(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return _allowed(segments, query, key)

    length, device = segments.shape[1], segments.device
    compiled = device.type == "cuda" and length > _WHOLE  # which takes seconds, the first time
    return create_block_mask(allowed, None, None, length, length, str(device), BLOCK, _compile=compiled)


def _allowed(segments: Tensor, query: Tensor, key: Tensor) -> Tensor:
    documents, responses = segments[0], segments[1]
    own = (responses[query] == responses[key]) | (responses[key] == 0)
    return (query >= key) & (documents[query] == documents[key]) & own


@cache
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=True)


def _packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: BlockMask,
    scaling: float | None = None,
    **_other: Any,
) -> tuple[Tensor, None]:
    """[1, heads, length, size] each, fewer heads of keys and values where these are shared; returns [1, length, heads,
    size]. The signature is that of transformers' attention functions."""
    alone = query.device.type == "cuda" and not torch.compiler.is_compiling()
    attend = _compiled() if alone else flex_attention
    shared = query.shape[1] // key.shape[1]
    key, value = (one.repeat_interleave(shared, dim=1) if shared > 1 else one for one in (key, value))
    # Under autocast rotary embeddings leave float32, and FlexAttention wants one type.
    query, key = query.to(value.dtype), key.to(value.dtype)
    attended = attend(query, key, value, block_mask=attention_mask, scale=scaling)
    return attended.transpose(1, 2).contiguous(), None
