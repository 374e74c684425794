"""A plain PyTorch loop over one big batch, in one process and in float32. The engine is compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from learners.policy import load_policy
from learners.records import Sample


def logprobs_of(model: Any, sample: Sample) -> Tensor:
    """Log-probabilities, [response tokens], of the plain forward pass over one sequence."""
    ids = torch.tensor([sample.prompt_ids + sample.response_ids])
    start = len(sample.prompt_ids)
    predictions = model(ids).logits[0, start - 1 : -1].log_softmax(-1)
    return predictions.gather(1, ids[0, start:, None])[:, 0]


def train_plainly(folder: Path, samples: Sequence[Sample]) -> dict[str, Tensor]:
    """Weights after two steps of cross-entropy and one of GRPO with KL 0.1 to the start."""
    model, _ = load_policy(folder, torch.float32)
    with torch.no_grad():
        reference = torch.cat([logprobs_of(model, sample) for sample in samples])
    advantages = torch.cat([torch.full((len(sample.response_ids),), sample.advantage) for sample in samples])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)
    for objective in ("cross_entropy", "cross_entropy", "grpo"):
        logprobs = torch.cat([logprobs_of(model, sample) for sample in samples])
        if objective == "cross_entropy":
            loss = -logprobs.mean()
        else:
            ratio = (logprobs - logprobs.detach()).exp()
            k3 = (reference - logprobs).exp() - (reference - logprobs) - 1
            loss = (-ratio * advantages + 0.1 * k3).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def plain_gradients(folder: Path, samples: Sequence[Sample]) -> dict[str, Tensor]:
    """Gradients of cross-entropy, clipped to a norm of 1."""
    model, _ = load_policy(folder, torch.float32)
    (-torch.cat([logprobs_of(model, sample) for sample in samples]).mean()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
