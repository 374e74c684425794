"""Packed attention gives what a dense mask gives; on a GPU its gradients, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import MistralConfig, Qwen3Config

from learners.attention import block_mask, packed_mask, supports_packing, use_packed_attention
from learners.batching import Batch, collate, plan_batches
from learners.policy import load_policy
from learners.records import Sample
from learners.scoring import TokenScorer


@pytest.fixture
def batch(samples: list[Sample]) -> Batch:
    plan = plan_batches(samples, micro_batch_tokens=4096, max_length=256, packed=True)
    return collate(plan.micro_batches[0][0], pad_id=0, packed=True)


@pytest.mark.parametrize("autocast", [False, True])
@torch.no_grad()
def test_blocks_allow_what_a_dense_mask_allows(policy_folder: Path, batch: Batch, autocast: bool) -> None:
    assert batch.segments is not None
    found = []
    for mask in (packed_mask(batch.segments), block_mask(batch.segments)):
        model, _ = load_policy(policy_folder, torch.float32)
        if not isinstance(mask, torch.Tensor):
            use_packed_attention(model)
        found.append(TokenScorer(model, autocast=autocast)(replace(batch, attention_mask=mask), 1.0)[0])
    torch.testing.assert_close(found[1], found[0], atol=3e-2 if autocast else 1e-5, rtol=0.0)


def test_a_window_is_no_full_attention(policy_folder: Path) -> None:
    model, _ = load_policy(policy_folder, torch.float32)
    assert supports_packing(model.config)
    model.config.layer_types = ["full_attention", "sliding_attention"]
    assert not supports_packing(model.config)
    assert not supports_packing(MistralConfig())
    assert supports_packing(Qwen3Config())


@pytest.mark.cuda
@pytest.mark.parametrize("heads", [(4, 2), (14, 2)])
def test_gradients_on_a_gpu_are_as_exact_as_those_of_a_dense_mask(heads: tuple[int, int]) -> None:
    """They differ from float32's as those of a dense mask in bfloat16 do. Lengths of several blocks; heads that are no
    power of two."""
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
    whole = replace(on_gpu, attention_mask=packed_mask(dense.segments).cuda())  # type: ignore[union-attr]

    def gradients(packed: bool, autocast: bool) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(config).cuda()
        if packed:
            use_packed_attention(model)
        TokenScorer(model, autocast=autocast)(on_gpu if packed else whole, 1.0)[0].mean().backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}

    exact = gradients(packed=False, autocast=False)
    rounded, found = gradients(packed=False, autocast=True), gradients(packed=True, autocast=True)
    for name, expected in exact.items():
        error, theirs = ((one[name] - expected).norm() / expected.norm() for one in (found, rounded))
        assert error < 1.5 * theirs + 1e-3, (name, float(error), float(theirs))
