"""Packed attention gives the same outputs as a dense mask, and on a GPU the same gradients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import MistralConfig, Qwen3Config

from learners import attention
from learners.attention import dense_mask, packed_layout, supports_packing, use_packed_attention
from learners.batching import Batch, collate, plan_batches
from learners.policy import compile_layers, load_policy
from learners.records import Sample
from learners.scoring import TokenScorer


@pytest.fixture
def batch(samples: list[Sample]) -> Batch:
    plan = plan_batches(samples, micro_batch_tokens=4096, max_length=256, packed=True)
    return collate(plan.micro_batches[0][0], pad_id=0, packed=True)


def dense_flash(
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
    """The same as FlashAttention, for machines without a GPU."""
    assert (most_queries, most_keys) == (int(query_bounds.diff().max()), int(key_bounds.diff().max()))
    key, value = (tensor.repeat_interleave(query.shape[1] // tensor.shape[1], dim=1) for tensor in (key, value))
    outputs, normalisers = [], []
    for number in range(len(query_bounds) - 1):
        rows = slice(int(query_bounds[number]), int(query_bounds[number + 1]))
        columns = slice(int(key_bounds[number]), int(key_bounds[number + 1]))
        scores = torch.einsum("qhd,khd->hqk", query[rows], key[columns]) * scale
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[1:], dtype=torch.bool).triu(1), -torch.inf)
        outputs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), value[columns]))
        normalisers.append(scores.logsumexp(-1))
    return torch.cat(outputs), torch.cat(normalisers, dim=1)


def dense_flash_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    normaliser: Tensor,
    query_bounds: Tensor,
    key_bounds: Tensor,
    *_most: int,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for its gradients, which follow from the given output and normalisers, not from its own."""
    shared = query.shape[1] // key.shape[1]
    keys, values = (one.repeat_interleave(shared, dim=1) for one in (key, value))
    found = torch.zeros_like(query), torch.zeros_like(keys), torch.zeros_like(values)
    inner = (gradient * output).sum(-1).T
    for number in range(len(query_bounds) - 1):
        rows = slice(int(query_bounds[number]), int(query_bounds[number + 1]))
        columns = slice(int(key_bounds[number]), int(key_bounds[number + 1]))
        scores = torch.einsum("qhd,khd->hqk", query[rows], keys[columns]) * scale
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[1:], dtype=torch.bool).triu(1), -torch.inf)
        shares = (scores - normaliser[:, rows, None]).exp()
        found[2][columns] += torch.einsum("hqk,qhd->khd", shares, gradient[rows])
        wanted = torch.einsum("qhd,khd->hqk", gradient[rows], values[columns])
        pull = shares * (wanted - inner[:, rows, None]) * scale
        found[0][rows] += torch.einsum("hqk,khd->qhd", pull, keys[columns])
        found[1][columns] += torch.einsum("hqk,qhd->khd", pull, query[rows])
    summed = (one.unflatten(1, (-1, shared)).sum(2) for one in found[1:])
    return found[0], *summed


def test_two_calls_joined_give_what_a_dense_mask_gives(
    policy_folder: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_flash", dense_flash)
    monkeypatch.setattr(attention, "_flash_backward", dense_flash_backward)
    assert batch.segments is not None
    layout = packed_layout(batch.segments)
    whole = replace(batch, attention_mask=dense_mask(batch.segments))
    joined = replace(batch, attention_mask=torch.empty(1, 1, 1, 1), layout=layout)
    found = []
    for one in (whole, joined):
        model, _ = load_policy(policy_folder, torch.float32)
        if one.layout is not None:
            use_packed_attention(model)
        logprobs, _ = TokenScorer(model, autocast=False)(one, 1.0)
        logprobs.square().mean().backward()
        found.append((logprobs.detach(), {name: weight.grad for name, weight in model.named_parameters()}))
    torch.testing.assert_close(found[1][0], found[0][0], atol=1e-5, rtol=0.0)
    for name, expected in found[0][1].items():
        torch.testing.assert_close(found[1][1][name], expected, atol=1e-5 * float(expected.abs().max()), rtol=0.0)


def test_a_layout_says_where_sequences_lie() -> None:
    documents, responses = [0, 0, 0, 1, 0, 0, 0, 1, 2, 2], [0, 0, 0, 0, 1, 2, 2, 1, 0, 0]
    layout = packed_layout(torch.tensor([documents, responses]))
    assert layout.bounds.tolist() == [0, 3, 4, 5, 7, 8, 10]
    assert layout.prompt_bounds.tolist() == [0, 3, 4]
    assert layout.response_bounds.tolist() == [0, 3, 4]
    assert layout.sizes.tolist() == [4, 4, 3, 3, 3]


def test_padding_alone_is_a_sequence_without_responses() -> None:
    layout = packed_layout(torch.zeros(2, 128, dtype=torch.int32))
    assert layout.bounds.tolist() == [0, 128]
    assert layout.sizes.tolist() == [0, 0, 128, 0, 0]


def test_a_window_is_no_full_attention(policy_folder: Path) -> None:
    model, _ = load_policy(policy_folder, torch.float32)
    assert supports_packing(model.config)
    model.config.layer_types = ["full_attention", "sliding_attention"]
    assert not supports_packing(model.config)
    assert not supports_packing(MistralConfig())
    assert supports_packing(Qwen3Config())


@pytest.mark.cuda
@pytest.mark.parametrize(("heads", "compiled"), [((4, 2), False), ((14, 2), False), ((14, 2), True)])
def test_gradients_on_a_gpu_are_as_exact_as_those_of_a_dense_mask(heads: tuple[int, int], compiled: bool) -> None:
    """They differ from float32's gradients as much as those of a dense mask in bfloat16 do. Lengths span several
    blocks, and the number of heads is not a power of two."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=512,
        hidden_size=64 * heads[0],
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
    )
    samples = [Sample((1 + prompt,) * 300, tuple(range(100, 150 + 40 * n))) for prompt in range(3) for n in range(5)]
    (rows,) = plan_batches(samples, micro_batch_tokens=8192, max_length=600, packed=True).micro_batches[0]
    dense = collate(rows, pad_id=0, packed=True)
    assert dense.segments is not None
    on_gpu = dense.to(torch.device("cuda"))
    whole = replace(on_gpu, attention_mask=dense_mask(dense.segments).cuda(), layout=None)

    def gradients(packed: bool, autocast: bool, compiled: bool = False) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(config).cuda()
        if packed:
            use_packed_attention(model)
        if compiled:
            compile_layers(model)
        TokenScorer(model, autocast=autocast)(on_gpu if packed else whole, 1.0)[0].mean().backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}

    exact = gradients(packed=False, autocast=False)
    rounded = gradients(packed=False, autocast=True)
    found = gradients(packed=True, autocast=True, compiled=compiled)
    for name, expected in exact.items():
        error, theirs = ((one[name] - expected).norm() / expected.norm() for one in (found, rounded))
        assert error < 1.5 * theirs + 1e-3, (name, float(error), float(theirs))
