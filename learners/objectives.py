"""From a micro-batch to its share of a step's loss: runs the policy on it and asks `learners.losses`.

Never steps an optimiser.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from configs.schema import ContrastiveConfig
from learners.batching import Plan
from learners.losses import GrpoSettings, LossInputs, LossOutputs, cross_entropy_loss, grpo_loss
from learners.micro_batches import MicroBatch


def cross_entropy_objective(scorer: Any, plan: Plan) -> Callable[[MicroBatch], LossOutputs]:
    """The mean over the response tokens of the step that `plan` is for. `scorer`: DeepSpeed's engine."""

    def loss_of(item: MicroBatch) -> LossOutputs:
        logprobs, _ = scorer(batch=item.batch, temperature=1.0)
        return cross_entropy_loss(LossInputs(logprobs, plan.response_tokens))

    return loss_of


def policy_objective(
    scorer: Any, plan: Plan, config: ContrastiveConfig, *, temperature: float, horizon: float
) -> Callable[[MicroBatch], LossOutputs]:
    """The clipped policy gradient of `config` (see `grpo_loss`), over the step that `plan` is for.

    `temperature`: at which the responses were sampled. `horizon`: see `GrpoSettings`.
    """
    objective = GrpoSettings(
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        kl=config.kl,
        importance_cap=config.importance_cap,
        ratio=config.ratio,
        mean=config.loss_mean,
        horizon=horizon,
    )

    def loss_of(item: MicroBatch) -> LossOutputs:
        logprobs, entropy = scorer(batch=item.batch, temperature=temperature, with_entropy=True)
        inputs = LossInputs(
            logprobs,
            plan.response_tokens,
            advantages=item.batch.advantages,
            old_logprobs=item.old,
            behaviour_logprobs=item.batch.behaviour_logprobs,
            reference_logprobs=item.reference,
            entropy=entropy,
            response_of=item.batch.response_of,
            responses=plan.responses,
            computed=plan.computed_tokens,
        )
        return grpo_loss(inputs, objective)

    return loss_of
