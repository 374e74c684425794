"""Attention over packed sequences: many prompts, each with several responses, in one row without padding.

A token sees its own sequence up to itself, and a response's sees the whole prompt besides. On a GPU these are two calls
of FlashAttention for sequences of many lengths, joined by their normalisers, as parts of a long sequence are in ring
attention (Liu et al., arXiv 2310.01889): a prompt that responses share is computed once, and nothing that is masked is
computed at all. Elsewhere a dense mask says the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

NAME = "warpsmith_packed"
BLOCK = 128  # tokens: packed rows are filled up to a multiple, so that few lengths occur
_PLAIN = "full_attention"
_WIDEST = 256  # head size that FlashAttention computes


class PackedLayout(NamedTuple):
    """Where sequences lie in a packed row: the prompts, the responses to the first, to the second, ..., and padding.

    `bounds`: [sequences + 1], where each prompt and each response begins, and the end; padding is a sequence, too.
    `prompt_bounds`, `response_bounds`: [prompts + 1], where each prompt, and all responses to it, begin among prompts
    and among responses. int32, on the model's device. `sizes`: int64 [5], on the CPU: tokens of all prompts, and of all
    responses; of the longest sequence, of the longest prompt, and of the most responses to one.
    """

    bounds: Tensor
    prompt_bounds: Tensor
    response_bounds: Tensor
    sizes: Tensor

    def to(self, device: torch.device) -> PackedLayout:
        """The same for a model on `device`."""
        bounds, prompts, responses = (one.to(device) for one in self[:3])
        return PackedLayout(bounds, prompts, responses, self.sizes)


def supports_packing(config: PretrainedConfig) -> bool:
    """Whether every layer attends to all that came before: a window or chunk would count the other responses in."""
    text = config.get_text_config()
    layers = getattr(text, "layer_types", None) or [_PLAIN]
    windowed = getattr(text, "sliding_window", None) or getattr(text, "attn_logit_softcapping", None)
    return set(layers) == {_PLAIN} and not windowed


def has_flash(config: PretrainedConfig, device: torch.device) -> bool:
    """Whether FlashAttention serves a model's heads on a GPU: of one size for queries, keys and values, a multiple of 8
    up to 256, from compute capability 8.0 on."""
    text = config.get_text_config()
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    alike = getattr(text, "v_head_dim", None) in (None, size) and getattr(text, "kv_lora_rank", None) is None
    return alike and size <= _WIDEST and size % 8 == 0 and torch.cuda.get_device_capability(device) >= (8, 0)


def use_packed_attention(model: PreTrainedModel) -> None:
    """From now on `model` computes with the `layout` that it is called with, in bfloat16, on a GPU."""
    AttentionInterface.register(NAME, _packed_attention)
    model.set_attn_implementation(NAME)


def packed_layout(segments: Tensor) -> PackedLayout:
    """What a packed row looks like to FlashAttention.

    segments: [2, length] on the CPU, which prompt a token belongs to, and which of its responses, from 1; 0 is the
    prompt itself. In the order that `PackedLayout` says; every prompt has a response, but padding, which is the last.
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
    """The same as [1, 1, length, length], true where attention is allowed."""
    documents, responses = segments
    causal = torch.ones(len(documents), len(documents), dtype=torch.bool, device=segments.device).tril()
    own = (responses[:, None] == responses[None, :]) | (responses[None, :] == 0)
    return (causal & (documents[:, None] == documents[None, :]) & own)[None, None]


def _bounds_of(sizes: Tensor) -> Tensor:
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).int()


def _packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    layout: PackedLayout | None = None,
    **_other: Any,
) -> tuple[Tensor, None]:
    """[1, heads, length, size] each, fewer heads of keys and values where these are shared; returns [1, length, heads,
    size]. The signature is that of transformers' attention functions."""
    assert layout is not None
    # Under autocast rotary embeddings leave float32, and FlashAttention wants one type.
    query, key, value = (one[0].transpose(0, 1).to(value.dtype).contiguous() for one in (query, key, value))
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
    """[length, heads, size] each to the output, likewise, and the logarithms of its normalisers, [heads, length]."""
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
    """Attention to two sets of keys, from that to each and the logarithms of their normalisers."""
    whole = torch.logaddexp(normaliser, share)
    first, second = ((one - whole).exp().T[..., None] for one in (normaliser, share))
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
    """Gradients of query, key and value. Each part is that of its own call with the whole's output and normaliser."""
    prompts, responses, longest, prompt, answers = sizes.tolist()
    found = _flash_backward(
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
        found[0][whole] += of_query
        found[1][:prompts] += of_key
        found[2][:prompts] += of_value
    return found


@_attend_backward.register_fake
def _(_gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *_others: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(one, memory_format=torch.contiguous_format) for one in (query, key, value))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors[:3], *output, *tensors[3:])


def _gradients(ctx: Any, gradient: Tensor, _of_normaliser: Tensor) -> tuple[Tensor | None, ...]:
    found = _attend_backward(gradient.contiguous(), *ctx.saved_tensors, ctx.scale)
    return (*found, *[None] * 5)


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
    """FlashAttention of each sequence's queries with its keys; the output, and the logarithms of its normalisers."""
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
    unused = torch.zeros(2, dtype=torch.uint64, device=query.device)  # random numbers, of dropout
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._flash_attention_backward(
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
    return found
