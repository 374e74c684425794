"""The objectives give numbers that were computed by hand, and their gradients vanish where they must."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from learners.losses import (
    GrpoSettings,
    LossInputs,
    LossOutputs,
    cross_entropy_loss,
    grpo_loss,
    k3_divergence,
    truncated_importance_weights,
)

OBJECTIVE = GrpoSettings(clip_low=0.2, clip_high=0.28, kl=0.0, importance_cap=2.0)


def logs(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def run(inputs: dict[str, Any], **changes: Any) -> tuple[LossOutputs, Tensor]:
    logprobs = inputs["logprobs"].clone().requires_grad_()
    outputs = grpo_loss(LossInputs(**{**inputs, "logprobs": logprobs}), replace(OBJECTIVE, **changes))
    outputs.loss.backward()
    assert logprobs.grad is not None
    return outputs, logprobs.grad


def test_cross_entropy_is_the_token_mean_of_negative_log_likelihood() -> None:
    outputs = cross_entropy_loss(LossInputs(logs(0.5, 0.25), normaliser=2))
    assert outputs.loss.item() == pytest.approx(math.log(8) / 2)


def test_micro_batches_add_up_to_the_whole() -> None:
    logprobs, advantages, old = logs(0.5, 0.3, 0.2), torch.tensor([1.0, -1.0, 0.5]), logs(0.4, 0.4, 0.2)

    def loss_of(part: slice) -> LossOutputs:
        inputs = LossInputs(logprobs[part], 3, advantages[part], old[part])
        return grpo_loss(inputs, OBJECTIVE)

    whole, parts = loss_of(slice(0, 3)), [loss_of(slice(0, 1)), loss_of(slice(1, 3))]
    assert sum(part.loss.item() for part in parts) == pytest.approx(whole.loss.item())
    assert sum(part.metrics["ratio_mean"].item() for part in parts) == pytest.approx(whole.metrics["ratio_mean"].item())


def test_grpo_matches_hand_computed_numbers() -> None:
    # Ratios 1.5 (clipped to 1.28), 0.5 (clipped to 0.8), 1.1 (free); advantages 1, -1, 2.
    inputs = {
        "logprobs": logs(0.3, 0.2, 0.22),
        "old_logprobs": logs(0.2, 0.4, 0.2),
        "advantages": torch.tensor([1.0, -1.0, 2.0], dtype=torch.float64),
        "normaliser": 3,
    }
    outputs, gradient = run(inputs)
    assert outputs.loss.item() == pytest.approx(-(1.28 - 0.8 + 2.2) / 3)
    assert gradient.tolist() == pytest.approx([0.0, 0.0, -2.2 / 3])
    assert outputs.metrics["clip_fraction"].item() == pytest.approx(2 / 3)
    assert outputs.metrics["ratio_mean"].item() == pytest.approx((1.5 + 0.5 + 1.1) / 3)
    assert outputs.metrics["ratio_max"].item() == pytest.approx(1.5)


def test_clipping_never_stops_a_ratio_from_coming_back() -> None:
    inputs = {
        "logprobs": logs(0.3, 0.2),
        "old_logprobs": logs(0.2, 0.4),
        "advantages": torch.tensor([-1.0, 1.0], dtype=torch.float64),
        "normaliser": 2,
    }
    _, gradient = run(inputs)
    assert gradient.tolist() == pytest.approx([1.5 / 2, -0.5 / 2])


# Two groups of two responses. The first carries a signal: one token with advantage 1, three with -1. The second has
# four tokens, all rewarded alike, to which the reference gives twice the policy's probability: k3 is 2 - ln 2 - 1 each.
SILENT = 1.0 - math.log(2.0)
GROUPS: dict[str, Any] = {
    "logprobs": logs(*[0.3] * 4, *[0.2] * 4),
    "reference_logprobs": logs(*[0.3] * 4, *[0.4] * 4),
    "advantages": torch.tensor([1.0, -1.0, -1.0, -1.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64),
    "response_of": torch.tensor([0, 1, 1, 1, 2, 2, 3, 3]),
}


@pytest.mark.parametrize(
    ("mean", "kl", "over_all", "over_signal"),
    [
        ("token", 0.1, (-1 + 3 + 0.1 * 4 * SILENT) / 8, (-1 + 3) / 4),
        ("token", 0.0, (-1 + 3) / 8, (-1 + 3) / 4),
        ("response", 0.1, (-1 + 1 + 0.1 * 2 * SILENT) / 4, (-1 + 1) / 2),
        ("constant", 0.1, (-1 + 3 + 0.1 * 4 * SILENT) / (4 * 10), (-1 + 3) / (2 * 10)),
    ],
)
def test_the_mean_over_all_responses_halves_a_signal_that_half_of_the_groups_carry(
    mean: str, kl: float, over_all: float, over_signal: float
) -> None:
    """0.265 against 0.5 in the first case. The tokens without a signal get the gradient of the KL term alone."""
    settings = {"mean": mean, "kl": kl, "horizon": 10.0}
    first = {name: value[:4] for name, value in GROUPS.items()}
    outputs, gradient = run({**GROUPS, "normaliser": 8, "responses": 4}, **settings)
    signal, its_gradient = run({**first, "normaliser": 4, "responses": 2}, **settings)
    assert (outputs.loss.item(), signal.loss.item()) == (pytest.approx(over_all), pytest.approx(over_signal))
    assert gradient[:4].tolist() == pytest.approx((its_gradient / 2).tolist())
    pulled = {"token": -1 / 8, "response": -1 / 8, "constant": -1 / 40}[mean]
    assert gradient[4:].tolist() == pytest.approx([kl * pulled] * 4)
    if not kl:  # then nothing is computed of the second group, and counting it is enough
        counted, same = run({**first, "normaliser": 8, "responses": 4, "computed": 4}, **settings)
        assert counted.loss.item() == pytest.approx(over_all)
        assert same.tolist() == pytest.approx(gradient[:4].tolist())
        assert counted.metrics["ratio_mean"].item() == pytest.approx(1.0), "a mean over what was computed"


# Two responses, of one token and of three, whose advantages are 1 and -1.
RESPONSES: dict[str, Any] = {
    "logprobs": logs(0.3, 0.1, 0.2, 0.4),
    "old_logprobs": logs(0.2, 0.2, 0.2, 0.1),
    "advantages": torch.tensor([1.0, -1.0, -1.0, -1.0], dtype=torch.float64),
    "normaliser": 4,
    "response_of": torch.tensor([0, 1, 1, 1]),
    "responses": 2,
}


def test_a_mean_by_response_counts_each_response_once() -> None:
    outputs, gradient = run(RESPONSES, mean="response", clip_high=9.0)
    assert outputs.loss.item() == pytest.approx((-1.5 + (0.8 + 1.0 + 4.0) / 3) / 2)
    assert gradient.tolist() == pytest.approx([-1.5 / 2, 0.0, 1.0 / 6, 4.0 / 6])


def test_a_constant_mean_does_not_look_at_lengths() -> None:
    outputs, gradient = run(RESPONSES, mean="constant", horizon=10.0, clip_high=9.0)
    assert outputs.loss.item() == pytest.approx((-1.5 + 0.8 + 1.0 + 4.0) / 20)
    assert gradient.tolist() == pytest.approx([-1.5 / 20, 0.0, 1.0 / 20, 4.0 / 20])


def test_the_ratio_of_a_sequence_is_the_geometric_mean_of_its_tokens() -> None:
    """GSPO: either all tokens of a response are clipped, or none."""
    ratio = (0.5 * 1.0 * 4.0) ** (1 / 3)  # 1.26 for the second response; 1.5 for the first, which is clipped
    outputs, gradient = run(RESPONSES, ratio="sequence", mean="response")
    assert outputs.loss.item() == pytest.approx((-1.28 + ratio) / 2)
    assert gradient.tolist() == pytest.approx([0.0, *[ratio / 6] * 3])
    assert outputs.metrics["clip_fraction"].item() == pytest.approx(1 / 4)
    assert outputs.metrics["ratio_max"].item() == pytest.approx(1.5)


@pytest.mark.parametrize("variant", [{"mean": "response"}, {"mean": "constant"}, {"ratio": "sequence"}])
def test_variants_add_up_over_micro_batches_too(variant: dict[str, str]) -> None:
    def part(tokens: slice) -> dict[str, Any]:
        cut = {name: value[tokens] for name, value in RESPONSES.items() if isinstance(value, Tensor)}
        return {**RESPONSES, **cut, "response_of": cut["response_of"] - cut["response_of"].min()}

    whole, gradient = run(RESPONSES, **variant)
    (first, first_gradient), (second, second_gradient) = (run(part(cut), **variant) for cut in (slice(1), slice(1, 4)))
    assert first.loss.item() + second.loss.item() == pytest.approx(whole.loss.item())
    assert torch.cat([first_gradient, second_gradient]).tolist() == pytest.approx(gradient.tolist())


@pytest.mark.parametrize("variant", [{"mean": "response"}, {"mean": "constant"}, {"ratio": "sequence"}])
def test_variants_that_need_responses_say_so(variant: dict[str, str]) -> None:
    inputs = {name: value for name, value in RESPONSES.items() if not name.startswith("response")}
    with pytest.raises(ValueError, match="response_of"):
        run(inputs, **variant)


def test_the_first_step_is_the_plain_policy_gradient() -> None:
    advantages = torch.tensor([1.0, -2.0], dtype=torch.float64)
    outputs, gradient = run({"logprobs": logs(0.3, 0.6), "advantages": advantages, "normaliser": 2})
    assert gradient.tolist() == pytest.approx((-advantages / 2).tolist())
    assert outputs.metrics["ratio_max"].item() == 1.0


def test_no_advantage_and_no_divergence_move_nothing() -> None:
    logprobs = logs(0.3, 0.6)
    inputs = {"logprobs": logprobs, "advantages": torch.zeros(2), "reference_logprobs": logprobs, "normaliser": 2}
    outputs, gradient = run(inputs, kl=0.1)
    assert outputs.loss.item() == 0.0
    assert gradient.tolist() == [0.0, 0.0]
    assert outputs.metrics["kl"].item() == 0.0


def test_kl_term_matches_hand_computed_numbers_and_pulls_to_the_reference() -> None:
    inputs = {
        "logprobs": logs(0.5, 0.2),
        "advantages": torch.zeros(2),
        "reference_logprobs": logs(0.25, 0.4),
        "normaliser": 2,
    }
    outputs, gradient = run(inputs, kl=0.1)
    k3 = (0.5 + math.log(2) - 1) + (2 - math.log(2) - 1)
    assert outputs.metrics["kl"].item() == pytest.approx(k3 / 2)
    assert outputs.loss.item() == pytest.approx(0.1 * k3 / 2)
    assert gradient.tolist() == pytest.approx([0.1 * (1 - 0.5) / 2, 0.1 * (1 - 2) / 2])


@given(st.lists(st.tuples(st.floats(-20, 0), st.floats(-20, 0)), min_size=1))
def test_k3_is_never_negative(pairs: list[tuple[float, float]]) -> None:
    policy, reference = torch.tensor(pairs, dtype=torch.float64).unbind(1)
    assert (k3_divergence(policy, reference) >= 0).all()


def test_one_token_that_the_policy_gave_up_does_not_outweigh_the_others() -> None:
    """It is k3 up to a factor of ten, and k3's tangent beyond."""
    reference = torch.zeros(5, dtype=torch.float64)
    policy = (-torch.tensor([-3.0, 1.0, math.log(10), math.log(10) + 2, 14.0], dtype=torch.float64)).requires_grad_()
    divergence = k3_divergence(policy, reference)
    divergence.sum().backward()
    assert policy.grad is not None
    assert policy.grad.tolist() == pytest.approx([1 - math.exp(-3), 1 - math.e, -9.0, -9.0, -9.0])
    at_ten = 10 - math.log(10) - 1
    line = [at_ten, at_ten + 9 * 2, at_ten + 9 * (14 - math.log(10))]
    assert divergence.tolist() == pytest.approx([math.exp(-3) + 3 - 1, math.e - 2, *line])


def test_importance_weights_are_truncated_and_neutral_where_the_behaviour_is_unknown() -> None:
    behaviour = torch.tensor([math.log(0.2), math.log(0.1), math.nan], dtype=torch.float64)
    old = logs(0.1, 0.9, 0.5)
    assert truncated_importance_weights(old, behaviour, 2.0).tolist() == pytest.approx([0.5, 2.0, 1.0])
    assert truncated_importance_weights(old, behaviour, 0.0).tolist() == [1.0, 1.0, 1.0]


def test_importance_weights_scale_the_gradient_but_carry_none() -> None:
    inputs = {
        "logprobs": logs(0.1, 0.9),
        "behaviour_logprobs": logs(0.2, 0.1),
        "advantages": torch.ones(2, dtype=torch.float64),
        "normaliser": 2,
    }
    outputs, gradient = run(inputs)
    assert gradient.tolist() == pytest.approx([-0.5 / 2, -2.0 / 2])
    assert outputs.metrics["mismatch_max"].item() == pytest.approx(math.log(9))
    assert outputs.metrics["mismatch"].item() == pytest.approx((math.log(2) + math.log(9)) / 2)


def test_tokens_whose_probability_differs_by_more_than_a_tenth_are_counted() -> None:
    inputs = {
        "logprobs": logs(0.56, 0.54, 0.44, 0.46, 0.5),
        "behaviour_logprobs": torch.tensor([*[math.log(0.5)] * 4, math.nan], dtype=torch.float64),
        "advantages": torch.ones(5, dtype=torch.float64),
        "normaliser": 5,
    }
    outputs, _ = run(inputs)
    assert outputs.metrics["mismatch_outside"].item() == pytest.approx(2 / 5)


def test_missing_inputs_are_named() -> None:
    with pytest.raises(ValueError, match="advantages"):
        grpo_loss(LossInputs(logs(0.5), 1), OBJECTIVE)
    with pytest.raises(ValueError, match="reference"):
        grpo_loss(LossInputs(logs(0.5), 1, advantages=torch.ones(1)), replace(OBJECTIVE, kl=0.1))


def test_a_batch_without_tokens_contributes_nothing() -> None:
    nothing = torch.empty(0)
    outputs = grpo_loss(LossInputs(nothing, 5, nothing, behaviour_logprobs=nothing), OBJECTIVE)
    assert outputs.loss.item() == 0.0
    assert all(value.item() == 0.0 for value in outputs.metrics.values())
