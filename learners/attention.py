"""Attention over packed sequences: many prompts, each with several responses, in one row without padding.

A token attends to its own sequence up to itself; a response's token also attends to the whole prompt. On a GPU these
are two calls of FlashAttention for sequences of many lengths. Their outputs are joined by their normalisers, as ring
attention joins the parts of a long sequence (Liu et al., arXiv 2310.01889). A prompt that responses share is computed
once, and masked positions are not computed at all. On a CPU a dense mask has the same effect.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

NAME = "warpsmith_packed"
BLOCK = 128  # tokens: packed rows are padded to a multiple of it, so that few lengths occur
_PLAIN = "full_attention"
_WIDEST = 256  # the largest head size that FlashAttention supports


class PackedLayout(NamedTuple):
    """The positions of sequences in a packed row: the prompts, the responses to the first prompt, to the second, ...,
    and padding.

    `bounds`: [sequences + 1], the start of each prompt and each response, and the end; padding is a sequence, too.
    `prompt_bounds`: [prompts + 1], the start of each prompt among the prompts. `response_bounds`: [prompts + 1], the
    start of each prompt's responses among the responses. All three are int32, on the model's device. `sizes`: int64
    [5], on the CPU: the tokens of all prompts, of all responses, of the longest sequence, of the longest prompt, and of
    the longest responses to one prompt together.
    """

    bounds: Tensor
    prompt_bounds: Tensor
    response_bounds: Tensor
    sizes: Tensor

    def to(self, device: torch.device) -> PackedLayout:
        """The same layout for a model on `device`."""
        bounds, prompts, responses = (tensor.to(device) for tensor in self[:3])
        return PackedLayout(bounds, prompts, responses, self.sizes)


class Heads(NamedTuple):
    """A policy's attention heads: those of queries, those of keys and values (which queries share if they are fewer),
    and the size of each."""

    queries: int
    keys: int
    size: int


def heads_of(config: PretrainedConfig) -> Heads:
    """The heads of a model."""
    text = config.get_text_config()
    queries = text.num_attention_heads
    keys = getattr(text, "num_key_value_heads", None) or queries
    return Heads(queries, keys, getattr(text, "head_dim", None) or text.hidden_size // queries)


def supports_packing(config: PretrainedConfig) -> bool:
    """Whether every layer attends to all earlier tokens. A window or chunk would count other responses' tokens, too."""
    text = config.get_text_config()
    layers = getattr(text, "layer_types", None) or [_PLAIN]
    windowed = getattr(text, "sliding_window", None) or getattr(text, "attn_logit_softcapping", None)
    return set(layers) == {_PLAIN} and not windowed


def has_flash(config: PretrainedConfig, device: torch.device) -> bool:
    """Whether FlashAttention supports a model's heads on a GPU: one size for queries, keys and values, a multiple of 8
    up to 256, and compute capability 8.0 or more."""
    text = config.get_text_config()
    size = heads_of(config).size
    one_size = getattr(text, "v_head_dim", None) in (None, size) and getattr(text, "kv_lora_rank", None) is None
    return one_size and size <= _WIDEST and size % 8 == 0 and torch.cuda.get_device_capability(device) >= (8, 0)


def use_packed_attention(model: PreTrainedModel) -> None:
    """Makes `model` compute attention by the `layout` of each call, in bfloat16, on a GPU."""
    AttentionInterface.register(NAME, packed_attention)
    model.set_attn_implementation(NAME)


def packed_layout(segments: Tensor) -> PackedLayout:
    """The layout of a packed row, for FlashAttention.

    segments: [2, length] on the CPU: the prompt that a token belongs to, and the response, counted from 1; 0 is the
    prompt itself. Tokens are in the order of `PackedLayout`. Every prompt has a response, except padding, which comes
    last.
    """
    documents, responses = segments
    changes = (segments[:, 1:] != segments[:, :-1]).any(dim=0).nonzero()[:, 0] + 1
    bounds = torch.cat([torch.tensor([0]), changes, torch.tensor([segments.shape[1]])])
    of_responses = torch.bincount(documents[responses > 0])
    of_prompts = torch.bincount(documents[responses == 0])[: len(of_responses)]
    longest = [int(sizes.max()) if len(sizes) else 0 for sizes in (bounds.diff(), of_prompts, of_responses)]
    sizes = torch.tensor([int(of_prompts.sum()), int(of_responses.sum()), *longest])
    return PackedLayout(bounds.int(), _bounds_of(of_prompts), _bounds_of(of_responses), sizes)


def dense_mask(segments: Tensor) -> Tensor:
    """The mask of the same row, [1, 1, length, length], true where attention is allowed."""
    documents, responses = segments
    causal = torch.ones(len(documents), len(documents), dtype=torch.bool, device=segments.device).tril()
    own = (responses[:, None] == responses[None, :]) | (responses[None, :] == 0)
    return (causal & (documents[:, None] == documents[None, :]) & own)[None, None]


def _bounds_of(sizes: Tensor) -> Tensor:
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).int()


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    layout: PackedLayout | None = None,
    **_other: Any,
) -> tuple[Tensor, None]:
    """Query, key and value: [1, heads, length, size]; keys and values may have fewer heads, which queries share.
    Returns [1, length, heads, size]. The signature is that of transformers' attention functions."""
    assert layout is not None
    # Under autocast rotary embeddings return float32, and FlashAttention needs one type for all.
    query, key, value = (tensor[0].transpose(0, 1).to(value.dtype).contiguous() for tensor in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return cast(Tensor, _attend(query, key, value, *layout, scale)[0])[None], None


@torch.library.custom_op("warpsmith::packed_attention", mutates_args=())
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    prompt_bounds: Tensor,
    response_bounds: Tensor,
    sizes: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Query, key and value: [length, heads, size]. Returns the output, of the same shape, and the logarithms of its
    normalisers, [heads, length]."""
    prompts, responses, longest, prompt, answers = sizes.tolist()
    output, normaliser = _flash(query, key, value, bounds, bounds, longest, longest, causal=True, scale=scale)
    if responses:
        whole = slice(prompts, prompts + responses)
        seen, share = _flash(
            query[whole],
            key[:prompts],
            value[:prompts],
            response_bounds,
            prompt_bounds,
            answers,
            prompt,
            causal=False,
            scale=scale,
        )
        join = _compiled_join() if query.is_cuda else _join
        output[whole], normaliser[:, whole] = join(output[whole], normaliser[:, whole], seen, share)
    return output, normaliser


def _join(output: Tensor, normaliser: Tensor, seen: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Joins the attention to two sets of keys, given each output and the logarithms of its normalisers."""
    whole = torch.logaddexp(normaliser, share)
    first, second = ((part - whole).exp().T[..., None] for part in (normaliser, share))
    return (first * output + second * seen).to(output.dtype), whole


@cache
def _compiled_join() -> Callable[..., tuple[Tensor, Tensor]]:
    return torch.compile(_join, dynamic=True)


@_attend.register_fake
def _(query: Tensor, *_others: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(query, memory_format=torch.contiguous_format), query.new_empty(
        (query.shape[1], query.shape[0]), dtype=torch.float32
    )


@torch.library.custom_op("warpsmith::packed_attention_backward", mutates_args=())
def _attend_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    normaliser: Tensor,
    bounds: Tensor,
    prompt_bounds: Tensor,
    response_bounds: Tensor,
    sizes: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value: the sum over both calls, each with the joined output and normalisers."""
    prompts, responses, longest, prompt, answers = sizes.tolist()
    gradients = _flash_backward(
        gradient, query, key, value, output, normaliser, bounds, bounds, longest, longest, causal=True, scale=scale
    )
    if responses:
        whole = slice(prompts, prompts + responses)
        of_query, of_key, of_value = _flash_backward(
            gradient[whole],
            query[whole],
            key[:prompts],
            value[:prompts],
            output[whole],
            normaliser[:, whole].contiguous(),
            response_bounds,
            prompt_bounds,
            answers,
            prompt,
            causal=False,
            scale=scale,
        )
        gradients[0][whole] += of_query
        gradients[1][:prompts] += of_key
        gradients[2][:prompts] += of_value
    return gradients


@_attend_backward.register_fake
def _(_gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *_others: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (query, key, value))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors[:3], *output, *tensors[3:])


def _gradients(ctx: Any, gradient: Tensor, _of_normaliser: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _attend_backward(gradient.contiguous(), *ctx.saved_tensors, ctx.scale)
    return (*gradients, *[None] * 5)


_attend.register_autograd(_gradients, setup_context=_save)


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_bounds: Tensor,
    key_bounds: Tensor,
    most_queries: int,
    most_keys: int,
    *,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """FlashAttention of each sequence's queries to its keys. Returns the output and its normalisers' logarithms."""
    output, normaliser, *_ = torch.ops.aten._flash_attention_forward(
        query, key, value, query_bounds, key_bounds, most_queries, most_keys, 0.0, causal, False, scale=scale
    )
    return output, normaliser


def _flash_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    normaliser: Tensor,
    query_bounds: Tensor,
    key_bounds: Tensor,
    most_queries: int,
    most_keys: int,
    *,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    unused = torch.zeros(2, dtype=torch.uint64, device=query.device)  # the random state of dropout
    gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._flash_attention_backward(
        gradient,
        query,
        key,
        value,
        output,
        normaliser,
        query_bounds,
        key_bounds,
        most_queries,
        most_keys,
        0.0,
        causal,
        unused,
        unused,
        scale=scale,
    )
    return gradients
