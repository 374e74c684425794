"""Attention over packed sequences: many prompts, each with several responses, in one row without padding.

A token sees its own sequence up to itself, and a response's sees the whole prompt besides. On a GPU these are two calls
of FlashAttention for sequences of many lengths, joined by their normalisers, as parts of a long sequence are in ring
attention (Liu et al., arXiv 2310.01889): a prompt that responses share is computed once, and nothing that is masked is
computed at all. Elsewhere a dense mask says the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

NAME = "warpsmith_packed"
BLOCK = 128  # tokens: packed rows are filled up to a multiple, so that few lengths occur
_PLAIN = "full_attention"
_WIDEST = 256  # head size that FlashAttention computes


class PackedLayout(NamedTuple):
    """Where sequences lie in a packed row; int32 on the model's device unless said otherwise.

    `bounds`: [sequences + 1], where each prompt and each response begins, and the end. `queries`, `keys`: int64, places
    of all response tokens, and of the prompt tokens that they see. `query_bounds`, `key_bounds`: [prompts + 1], where
    in these each prompt's begin, and the end. `longest`: int64 [3] on the CPU, tokens of the longest sequence, of the
    most responses to a prompt together, and of the longest prompt.
    """

    bounds: Tensor
    queries: Tensor
    keys: Tensor
    query_bounds: Tensor
    key_bounds: Tensor
    longest: Tensor

    def to(self, device: torch.device) -> PackedLayout:
        """The same for a model on `device`."""
        return PackedLayout(**{name: one.to(device) for name, one in self._asdict().items()})._replace(
            longest=self.longest
        )


def supports_packing(config: PretrainedConfig) -> bool:
    """Whether every layer attends to all that came before: a window or chunk would count the other responses in."""
    text = config.get_text_config()
    layers = getattr(text, "layer_types", None) or [_PLAIN]
    windowed = getattr(text, "sliding_window", None) or getattr(text, "attn_logit_softcapping", None)
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return set(layers) == {_PLAIN} and not windowed and size <= _WIDEST and size % 8 == 0


def use_packed_attention(model: PreTrainedModel) -> None:
    """From now on `model` computes with the `layout` that it is called with, in bfloat16, on a GPU."""
    AttentionInterface.register(NAME, _packed_attention)
    model.set_attn_implementation(NAME)


def packed_layout(segments: Tensor) -> PackedLayout:
    """What a packed row looks like to FlashAttention.

    segments: [2, length] on the CPU, the prompt that a token belongs to, ascending, and which of its responses, from 1;
    0 is the prompt itself. Padding is a prompt of its own.
    """
    documents, responses = segments
    changes = (segments[:, 1:] != segments[:, :-1]).any(dim=0).nonzero()[:, 0] + 1
    bounds = torch.cat([torch.tensor([0]), changes, torch.tensor([segments.shape[1]])])
    answers = torch.bincount(documents[responses > 0], minlength=int(documents.max()) + 1)
    answered = (answers > 0)[documents]
    queries, keys = (responses > 0).nonzero()[:, 0], ((responses == 0) & answered).nonzero()[:, 0]
    query_sizes, key_sizes = answers[answers > 0], torch.bincount(documents[keys])
    key_sizes = key_sizes[key_sizes > 0]
    longest = [int(sizes.max()) if len(sizes) else 0 for sizes in (bounds.diff(), query_sizes, key_sizes)]
    return PackedLayout(
        bounds.int(), queries, keys, _bounds_of(query_sizes), _bounds_of(key_sizes), torch.tensor(longest)
    )


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
    query, key, value = (one[0].transpose(0, 1).to(value.dtype) for one in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return cast(Tensor, _attend(query, key, value, *layout, scale)[0])[None], None


@torch.library.custom_op("warpsmith::packed_attention", mutates_args=())
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    queries: Tensor,
    keys: Tensor,
    query_bounds: Tensor,
    key_bounds: Tensor,
    longest: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """[length, heads, size] each to the output, likewise, and the logarithms of its normalisers, [heads, length]."""
    own, prompt_queries, prompt_keys = longest.tolist()
    output, normaliser = _flash(query, key, value, bounds, bounds, own, own, causal=True, scale=scale)
    if len(queries):
        seen, share = _flash(
            query[queries],
            key[keys],
            value[keys],
            query_bounds,
            key_bounds,
            prompt_queries,
            prompt_keys,
            causal=False,
            scale=scale,
        )
        before = normaliser[:, queries]
        whole = torch.logaddexp(before, share)
        weights = ((one - whole).exp().T[..., None].to(output.dtype) for one in (before, share))
        output[queries] = next(weights) * output[queries] + next(weights) * seen
        normaliser[:, queries] = whole
    return output, normaliser


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
    queries: Tensor,
    keys: Tensor,
    query_bounds: Tensor,
    key_bounds: Tensor,
    longest: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value. Each part is that of its own call with the whole's output and normaliser."""
    own, prompt_queries, prompt_keys = longest.tolist()
    found = _flash_backward(
        gradient, query, key, value, output, normaliser, bounds, bounds, own, own, causal=True, scale=scale
    )
    if len(queries):
        of_prompts = _flash_backward(
            gradient[queries],
            query[queries],
            key[keys],
            value[keys],
            output[queries],
            normaliser[:, queries].contiguous(),
            query_bounds,
            key_bounds,
            prompt_queries,
            prompt_keys,
            causal=False,
            scale=scale,
        )
        for one, part, places in zip(found, of_prompts, (queries, keys, keys), strict=True):
            one.index_add_(0, places, part)
    return found


@_attend_backward.register_fake
def _(_gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *_others: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(one, memory_format=torch.contiguous_format) for one in (query, key, value))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors[:3], *output, *tensors[3:])
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, gradient: Tensor, _of_normaliser: Tensor) -> tuple[Tensor | None, ...]:
    found = _attend_backward(gradient.contiguous(), *ctx.saved_tensors, ctx.scale)
    return (*found, *[None] * 7)


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
