"""The log-probabilities of the fast path are those of the plain Hugging Face forward pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from learners import scoring
from learners.batching import collate, plan_batches
from learners.policy import load_policy
from learners.records import Sample
from learners.scoring import TokenScorer, has_bfloat16


def plain_logprobs(model: torch.nn.Module, sample: Sample, temperature: float) -> list[float]:
    ids = torch.tensor([sample.prompt_ids + sample.response_ids])
    distribution = (model(ids).logits[0].float() / temperature).log_softmax(-1)
    start = len(sample.prompt_ids)
    return [distribution[start + i - 1, token].item() for i, token in enumerate(sample.response_ids)]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("share_prompts", [False, True])
@torch.no_grad()
def test_logprobs_equal_those_of_each_sequence_alone(
    policy_folder: Path, samples: list[Sample], share_prompts: bool, packed: bool, temperature: float
) -> None:
    model, _ = load_policy(policy_folder, torch.float32)
    plan = plan_batches(samples, micro_batch_tokens=4096, max_length=256, share_prompts=share_prompts, packed=packed)
    (rows,) = plan.micro_batches[0]
    assert len(rows) == (2 if share_prompts else 4)
    batch = collate(rows, pad_id=0, packed=packed).to(torch.device("cpu"))
    assert batch.input_ids.numel() == plan.padded_tokens
    logprobs, entropy = TokenScorer(model, autocast=False)(batch, temperature, with_entropy=True)
    expected = [value for row in rows for sample in row.samples for value in plain_logprobs(model, sample, temperature)]
    assert logprobs.tolist() == pytest.approx(expected, abs=1e-4)
    assert entropy is not None
    assert entropy.shape == logprobs.shape
    assert (entropy > 0).all()


def test_chunks_change_neither_values_nor_gradients(
    policy_folder: Path, samples: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = load_policy(policy_folder, torch.float32)
    rows = plan_batches(samples, micro_batch_tokens=4096, max_length=256).micro_batches[0][0]
    batch, scorer = collate(rows, pad_id=0), TokenScorer(model, autocast=False)
    results = []
    few = 7 * model.config.vocab_size
    for elements, memory in (
        (1 << 26, 0),
        (few, 0),
        (few, 1 << 40),
    ):  # one chunk; several that are computed again; several that are kept
        monkeypatch.setitem(scoring.CHUNK_ELEMENTS, "cpu", elements)
        monkeypatch.setattr(scoring, "device_bytes", lambda _, memory=memory: memory)
        model.zero_grad()
        logprobs, entropy = scorer(batch, 1.0, with_entropy=True)
        logprobs.mean().backward()
        gradient = model.get_input_embeddings().weight.grad
        results.append((logprobs.detach(), entropy, gradient.clone()))
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(results[2], results[0])


@pytest.mark.parametrize("softcap", [None, 5.0])
@torch.no_grad()
def test_entropies_are_those_of_the_distribution(
    policy_folder: Path, samples: list[Sample], softcap: float | None
) -> None:
    model, _ = load_policy(policy_folder, torch.float32)
    model.config.final_logit_softcapping = softcap
    rows = plan_batches(samples[:1], micro_batch_tokens=4096, max_length=256).micro_batches[0][0]
    batch = collate(rows, pad_id=0)
    logprobs, entropy = TokenScorer(model, autocast=False)(batch, 0.7, with_entropy=True)
    logits = model(batch.input_ids).logits[0, batch.predictors]
    logits = (softcap * torch.tanh(logits / softcap) if softcap else logits) / 0.7
    expected = torch.distributions.Categorical(logits=logits)
    torch.testing.assert_close(entropy, expected.entropy(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(logprobs, expected.log_prob(batch.targets), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("autocast", [False, True])
def test_packed_rows_give_the_gradients_of_padded_ones(
    policy_folder: Path, samples: list[Sample], autocast: bool
) -> None:
    gradients = []
    for packed in (False, True):
        model, _ = load_policy(policy_folder, torch.float32)
        (rows,) = plan_batches(samples, micro_batch_tokens=4096, max_length=256, packed=packed).micro_batches[0]
        batch = collate(rows, pad_id=0, packed=packed).to(torch.device("cpu"))
        TokenScorer(model, autocast=autocast)(batch, 1.0)[0].mean().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, expected in gradients[0].items():
        scale = float(expected.abs().max())
        torch.testing.assert_close(gradients[1][name], expected, atol=(2e-2 if autocast else 1e-5) * scale, rtol=0.0)


def test_an_empty_batch_gives_zero_gradients_everywhere(policy_folder: Path) -> None:
    model, _ = load_policy(policy_folder, torch.float32)
    logprobs, _ = TokenScorer(model, autocast=True)(collate([], pad_id=0), 1.0)
    logprobs.sum().backward()
    assert logprobs.shape == (0,)
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


@torch.no_grad()
def test_a_cpu_has_bfloat16_where_its_instructions_say_so() -> None:
    flags = set(re.findall(r"\b(?:avx512bw|amx_bf16|bf16)\b", Path("/proc/cpuinfo").read_text()))
    assert has_bfloat16("cpu") == bool(flags)
    assert has_bfloat16("cuda")


def test_autocast_stays_close_to_float32(policy_folder: Path, samples: list[Sample]) -> None:
    model, _ = load_policy(policy_folder, torch.float32)
    batch = collate(plan_batches(samples, micro_batch_tokens=4096, max_length=256).micro_batches[0][0], pad_id=0)
    exact, _ = TokenScorer(model, autocast=False)(batch, 1.0)
    fast, _ = TokenScorer(model, autocast=True)(batch, 1.0)
    assert fast.dtype is torch.float32
    torch.testing.assert_close(fast, exact, atol=0.05, rtol=0)
