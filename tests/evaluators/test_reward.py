"""Rewards by `reward.worth` are those that the keys before it gave."""

from __future__ import annotations

import random

import pytest

from configs.schema import RewardConfig
from evaluators.records import Estimate, Outcome, Verdict
from evaluators.reward import new_reward_of, reward_of

KEYS = {
    "speedup": {"offset": 0.0, "copies": 1.0},
    "gain": {"offset": 0.9, "copies": 0.2},
    "beat_shown": {"offset": 1.0, "copies": 1.0, "beat_exemplars": True},
}


def verdict_of(outcome: Outcome, eager: float, compiled: float) -> Verdict:
    speedups = {"eager": Estimate(eager, eager, eager, 3), "torch_compile": Estimate(compiled, compiled, compiled, 3)}
    return Verdict("c", "t", "cpu", outcome, speedups=speedups if outcome is Outcome.OK else {})


@pytest.mark.parametrize("worth", KEYS)
def test_a_worth_gives_the_rewards_that_its_keys_gave(worth: str) -> None:
    draw = random.Random(0)
    outcomes = [Outcome.OK] * 8 + list(Outcome)
    different = set()
    for _ in range(30_000):
        verdict = verdict_of(draw.choice(outcomes), draw.uniform(0.001, 4) ** 4, draw.uniform(0.001, 3) ** 3)
        common = {
            "baseline": draw.choice(["eager", "best"]),
            "max": draw.choice([1.0, 5.0, 100.0]),
            "resolution": draw.choice([0.0, 0.02, 0.05, 0.3]),
        }
        shown = draw.choice([1.0, draw.uniform(1.0, 5.0)])
        old = RewardConfig(**common, **KEYS[worth])
        for copied in (False, True):
            before = reward_of(verdict, old, shown)
            if before is not None and copied:
                before *= old.copies
            now = new_reward_of(verdict, RewardConfig(**common, worth=worth), fastest_shown=shown, is_copy=copied)
            assert now == before
            different.add(now)
    assert len(different) > 1000
