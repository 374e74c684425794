"""The training objectives: functions from a `LossInputs` to a `LossOutputs` record. They get log-probabilities of
response tokens only, and never see the model, the optimiser or other ranks.

Losses and metrics are sums over the given tokens, divided by `normaliser`. If that is the number of tokens of the whole
step, the results of micro-batches and ranks add up to the result of one big batch. Metrics other than the loss are
divided by `computed`, without the tokens that only count in the loss's mean. Those ending in `_max` are maxima, and
merge by the maximum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class LossInputs:
    """Values of the response tokens of a micro-batch, [tokens] each. Only `logprobs` has a gradient.

    `logprobs`: of the trained policy. `old_logprobs`: of the policy at the start of the step; None stands for the
    current ones, detached, in the first optimiser step. `behaviour_logprobs`: as the rollout engine reported them, NaN
    if unknown. `normaliser`: number of response tokens of the whole step, over all micro-batches and ranks.
    `response_of`: each token's response, counted from 0 in the micro-batch, which holds whole responses only.
    `responses`: number of responses of the whole step. `computed`: number of the step's response tokens of which
    log-probabilities are computed; 0 stands for `normaliser`.
    """

    logprobs: Tensor
    normaliser: float
    advantages: Tensor | None = None
    old_logprobs: Tensor | None = None
    behaviour_logprobs: Tensor | None = None
    reference_logprobs: Tensor | None = None
    entropy: Tensor | None = None
    response_of: Tensor | None = None
    responses: float = 0.0
    computed: float = 0.0


@dataclass(frozen=True)
class LossOutputs:
    """`loss`: a scalar to differentiate. `metrics`: detached scalars, each a share of a mean over the whole step."""

    loss: Tensor
    metrics: dict[str, Tensor] = field(default_factory=dict)


def cross_entropy_loss(inputs: LossInputs) -> LossOutputs:
    """Mean negative log-likelihood of the response tokens (SFT, and REINFORCE with reward 1 for successes)."""
    loss = -inputs.logprobs.sum() / inputs.normaliser
    return LossOutputs(loss, {"loss": loss.detach()})


K3_LINEAR_FROM = math.log(10.0)
"""From here on k3 is replaced by its tangent: the reference gives a token ten times the policy's probability."""


def k3_divergence(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """The k3 estimate of KL(policy || reference) per token: exp(d) - d - 1 with d = reference - policy; never negative.

    Both [tokens], returns [tokens]. From "Approximating KL Divergence" (Schulman, 2020), as GRPO uses it. Above
    `K3_LINEAR_FROM` it is linear in d. Otherwise the exponential of one token that the policy hardly ever writes
    outweighs everything else in a step: in docs/results/hour one gradient had a norm of 1282, all others 0.2 to 2.1. A
    cap, which others use, would have no gradient, and so would not pull such a token back.
    """
    difference = reference_logprobs - logprobs
    curved = difference.clamp(max=K3_LINEAR_FROM)
    return torch.expm1(curved) - curved + math.expm1(K3_LINEAR_FROM) * (difference - curved)


def truncated_importance_weights(old_logprobs: Tensor, behaviour_logprobs: Tensor | None, cap: float) -> Tensor:
    """min(exp(old - behaviour), cap) per token, detached. Corrects for differences between the engine that sampled and
    the learner.

    [tokens] each. The weight is 1 if `cap` is 0 or the behaviour log-probability is unknown (NaN).
    """
    if cap == 0.0 or behaviour_logprobs is None:
        return torch.ones_like(old_logprobs)
    weights = (old_logprobs - behaviour_logprobs).detach().exp().clamp_max(cap)
    return torch.where(torch.isnan(behaviour_logprobs), torch.ones_like(weights), weights)


@dataclass(frozen=True)
class GrpoSettings:
    """The variant of `grpo_loss`.

    `clip_low`, `clip_high`: how far a ratio may go below and above 1. `kl`: weight of k3. `importance_cap`: the cap of
    truncated importance sampling, 0 for none. `ratio`: of each `token`, or of the `sequence`, which is the geometric
    mean over a response's tokens (GSPO, arXiv 2507.18071, eq. 7). `mean`: the loss is a mean over all tokens of the
    step (`token`), over each `response` and then over responses (GRPO as first published), or a sum divided by
    responses x `horizon` (`constant`; Dr. GRPO, arXiv 2503.20783).
    """

    clip_low: float
    clip_high: float
    kl: float
    importance_cap: float
    ratio: str = "token"
    mean: str = "token"
    horizon: float = 1.0


def response_means(values: Tensor, response_of: Tensor) -> Tensor:
    """Replaces each token's value by the mean over its response; both [tokens]."""
    lengths = torch.bincount(response_of).clamp_min(1)
    sums = values.new_zeros(len(lengths)).index_add(0, response_of, values)
    return (sums / lengths)[response_of]


def token_weights(inputs: LossInputs, objective: GrpoSettings) -> Tensor:
    """The weight of each token in a step's loss, [tokens]. Raises ValueError if the mean needs missing responses."""
    if objective.mean == "token":
        return torch.full_like(inputs.logprobs, 1.0 / inputs.normaliser, requires_grad=False)
    if inputs.response_of is None or inputs.responses <= 0:
        raise ValueError(f"grpo_loss needs response_of and responses for a mean by {objective.mean}")
    if objective.mean == "constant":
        share = 1.0 / (inputs.responses * objective.horizon)
        return torch.full_like(inputs.logprobs, share, requires_grad=False)
    lengths = torch.bincount(inputs.response_of)[inputs.response_of]
    return 1.0 / (lengths * inputs.responses).to(inputs.logprobs.dtype)


def grpo_loss(inputs: LossInputs, objective: GrpoSettings) -> LossOutputs:
    """The clipped policy-gradient objective with a KL term (CUDA-L1 section 2.4.5, equation 5), in the variants of
    `GrpoSettings`.

    Per token: -w * min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A) + kl * k3, where ratio = exp(logprobs -
    old_logprobs) and w is the truncated importance weight. Raises ValueError without advantages, without reference
    log-probabilities if kl > 0, and without `response_of` if a variant needs it.
    """
    clip_low, clip_high, kl = objective.clip_low, objective.clip_high, objective.kl
    if inputs.advantages is None:
        raise ValueError("grpo_loss needs advantages")
    old = inputs.logprobs.detach() if inputs.old_logprobs is None else inputs.old_logprobs
    advantages = inputs.advantages
    log_ratio = inputs.logprobs - old
    if objective.ratio == "sequence":
        if inputs.response_of is None:
            raise ValueError("grpo_loss needs response_of for a ratio by sequence")
        log_ratio = response_means(log_ratio, inputs.response_of)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    weights = truncated_importance_weights(old, inputs.behaviour_logprobs, objective.importance_cap)
    seen = inputs.computed or inputs.normaliser
    token_loss = -weights * torch.minimum(ratio * advantages, clipped * advantages)
    metrics: dict[str, Tensor] = {}
    if kl > 0.0:
        if inputs.reference_logprobs is None:
            raise ValueError(f"grpo_loss needs reference log-probabilities when kl > 0, got kl = {kl}")
        divergence = k3_divergence(inputs.logprobs, inputs.reference_logprobs)
        token_loss = token_loss + kl * divergence
        metrics["kl"] = _share(divergence, seen)
    loss = (token_loss * token_weights(inputs, objective)).sum()

    clipped_away = ((advantages > 0) & (ratio > 1.0 + clip_high)) | ((advantages < 0) & (ratio < 1.0 - clip_low))
    metrics["loss"] = loss.detach()
    metrics["clip_fraction"] = _share(clipped_away.float(), seen)
    metrics["ratio_mean"] = _share(ratio, seen)
    metrics["ratio_max"] = _maximum(ratio)
    metrics["importance_weight"] = _share(weights, seen)
    if inputs.entropy is not None:
        metrics["entropy"] = _share(inputs.entropy, seen)
    if inputs.behaviour_logprobs is not None:
        difference = old - inputs.behaviour_logprobs
        mismatch = difference.abs().nan_to_num(nan=0.0)
        metrics["mismatch"] = _share(mismatch, seen)
        metrics["mismatch_outside"] = _share((difference.expm1().abs() > 0.1).float(), seen)
        metrics["mismatch_max"] = _maximum(mismatch)
    return LossOutputs(loss, metrics)


def _share(values: Tensor, tokens: float) -> Tensor:
    return values.detach().sum() / tokens


def _maximum(values: Tensor) -> Tensor:
    return values.detach().max() if values.numel() else values.new_zeros(())
