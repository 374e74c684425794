"""How varied responses are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from learners.records import Rollout
from orchestration.step.variety import token_entropy, variety


def rollout(task: str, ids: tuple[int, ...], logprobs: tuple[float, ...] = (), digest: str | None = None) -> Rollout:
    return Rollout(task, task, "", "", (1,), ids, logprobs, 0, candidate_digest=digest)


def test_entropy_is_estimated_without_bias_from_what_was_sampled() -> None:
    """Tokens drawn from a known distribution, whose entropy is known."""
    chances = np.array([0.7, 0.2, 0.05, 0.05])
    drawn = np.random.default_rng(0).choice(4, size=(200, 50), p=chances)
    rollouts = [rollout("t", tuple(map(int, ids)), tuple(np.log(chances[ids]))) for ids in drawn]
    assert token_entropy(rollouts) == pytest.approx(-(chances * np.log(chances)).sum(), abs=0.02)
    assert token_entropy([rollout("t", ())]) is None


def test_every_token_counts_alike() -> None:
    assert token_entropy([rollout("t", (1,), (-3.0,)), rollout("t", (1, 2, 3), (-1.0,) * 3)]) == 1.5


def test_responses_that_repeat_have_few_distinct_pairs_and_programs() -> None:
    alike = [rollout("t", (1, 2, 3), (-0.1,) * 3, "same")] * 4
    assert variety(alike) == {"token_entropy": pytest.approx(0.1), "distinct_bigrams": 0.25, "distinct_programs": 0.25}
    other = [rollout("u", (1, 2, 3), digest="other"), rollout("u", (2, 1, 3), digest=None)]
    figures = variety([*alike, *other])
    assert figures["distinct_bigrams"] == pytest.approx((0.25 + 1.0) / 2), "each task counts once"
    assert figures["distinct_programs"] == pytest.approx(2 / 5)
    assert variety([]) == {}
    assert not any(math.isnan(value) for value in variety([rollout("t", (1,))]).values())
