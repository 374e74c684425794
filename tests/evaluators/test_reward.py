"""A verdict's reward is its speed-up, counted as `reward.worth` says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.schema import RewardConfig
from evaluators.records import Estimate, Outcome, Verdict
from evaluators.reward import WORTHS, is_success, reward_of

# Speed-up, fastest shown, is a copy, resolution; rewards for speedup, gain and beat_shown. The numbers are those of the
# keys that `reward.worth` replaced: offset, copies and beat_exemplars.
GOLDEN = [
    (0.3, 1.0, False, 0.0, 0.3, 0.0, 0.0),
    (0.993, 1.0, True, 0.02, 1.0, 0.019999999999999997, 0.0),
    (1.0, 1.0, True, 0.0, 1.0, 0.019999999999999997, 0.0),
    (1.009, 1.0, False, 0.02, 1.0, 0.09999999999999998, 0.0),
    (1.011, 1.0, False, 0.02, 1.02, 0.12, 0.020000000000000018),
    (1.3, 1.0, False, 0.0, 1.3, 0.4, 0.30000000000000004),
    (1.3, 1.3, True, 0.05, 1.2762815625, 0.07525631249999998, 0.0),
    (2.4, 1.9, False, 0.0, 2.4, 1.5, 0.26315789473684204),
    (2.4, 1.9, False, 0.05, 2.4066192336910843, 1.5066192336910844, 0.2762815624999999),
    (2.41, 2.4, True, 0.02, 2.3900531424522975, 0.2980106284904595, 0.0),
    (4.8, 2.4, False, 0.02, 4.77984230989842, 3.8798423098984203, 0.9998895526624552),
    (29.0, 1.0, False, 0.05, 28.977548129060807, 28.07754812906081, 27.977548129060807),
    (449.0, 2.0, False, 0.0, 100.0, 99.1, 99.0),
]


def verdict_of(outcome: Outcome = Outcome.OK, **speedups: float) -> Verdict:
    estimates = {name: Estimate(value, value, value, 3) for name, value in speedups.items()}
    return Verdict("c", "t", "cpu", outcome, speedups=estimates)


@pytest.mark.parametrize("case", GOLDEN, ids=[f"{case[0]} over {case[1]}" for case in GOLDEN])
def test_a_worth_gives_the_rewards_that_runs_before_it_had(case) -> None:
    speedup, shown, is_copy, resolution, *expected = case
    verdict = verdict_of(eager=speedup)
    configs = [RewardConfig(worth=worth, resolution=resolution) for worth in ("speedup", "gain", "beat_shown")]
    rewards = [reward_of(verdict, config, fastest_shown=shown, is_copy=is_copy) for config in configs]
    assert rewards == pytest.approx(expected, rel=1e-14, abs=0.0)


def test_reward_is_the_speedup_over_the_configured_baseline() -> None:
    verdict = verdict_of(eager=1.5, torch_compile=0.9)
    assert reward_of(verdict, RewardConfig(baseline="eager")) == 1.5
    assert reward_of(verdict, RewardConfig(baseline="best")) == 0.9
    assert reward_of(verdict, RewardConfig(baseline="eager", max=1.2)) == 1.2


def test_the_lower_end_of_the_interval_may_be_rewarded_instead_of_the_point() -> None:
    over = {"eager": Estimate(1.5, 1.4, 1.6, 9), "torch_compile": Estimate(1.2, 0.9, 1.5, 9)}
    verdict = Verdict("c", "t", "cpu", Outcome.OK, speedups=over)
    assert reward_of(verdict, RewardConfig()) == 1.5, "as in the paper"
    assert reward_of(verdict, RewardConfig(estimate="low")) == 1.4
    assert reward_of(verdict, RewardConfig(estimate="low", baseline="best")) == 0.9
    assert reward_of(verdict, RewardConfig(estimate="low", worth="gain"), is_copy=True) == pytest.approx(0.1)
    assert reward_of(verdict, RewardConfig(estimate="low", worth="beat_shown"), fastest_shown=1.45) == 0.0, "in doubt"
    assert verdict.speedup == 1.5, "what is reported stays the point"


def test_a_program_that_may_be_too_slow_is_no_success_if_the_lower_end_counts() -> None:
    verdict = Verdict("c", "t", "cpu", Outcome.OK, speedups={"eager": Estimate(1.07, 1.01, 1.13, 9)})
    assert is_success(verdict, RewardConfig(), 1.05)
    assert not is_success(verdict, RewardConfig(estimate="low"), 1.05)
    wide = Verdict("c", "t", "cpu", Outcome.OK, speedups={"eager": Estimate(0.1, -0.2, 0.4, 3)})
    assert is_success(wide, RewardConfig(estimate="low"), 0.0), "every right program, as in the paper"
    assert reward_of(wide, RewardConfig(estimate="low", resolution=0.05)) == 0.0


@pytest.mark.parametrize("worth", WORTHS)
def test_failures_get_nothing_and_what_is_in_doubt_is_neutral(worth: str) -> None:
    config = RewardConfig(worth=worth, resolution=0.1)
    for outcome in set(Outcome) - {Outcome.OK, Outcome.SUSPECT, Outcome.INFRA}:
        assert reward_of(verdict_of(outcome), config, is_copy=True) == 0.0
    for outcome in (Outcome.SUSPECT, Outcome.INFRA):
        assert reward_of(verdict_of(outcome), config, is_copy=True) is None


def test_gain_makes_the_reference_again_worth_little_and_nothing_worth_less_than_a_failure() -> None:
    config = RewardConfig(worth="gain")
    assert reward_of(verdict_of(eager=1.5), config) == pytest.approx(0.6)
    assert reward_of(verdict_of(eager=1.0), config, is_copy=True) == pytest.approx(0.02)
    assert reward_of(verdict_of(eager=0.8), config) == 0.0
    assert reward_of(verdict_of(eager=1.5), RewardConfig(worth="gain", max=1.2)) == pytest.approx(0.3), "cut first"


def test_beat_shown_makes_a_shown_program_worth_nothing_however_it_is_disguised() -> None:
    config = RewardConfig(worth="beat_shown", resolution=0.02)
    assert reward_of(verdict_of(eager=2.4), config, fastest_shown=2.4) == 0.0
    assert reward_of(verdict_of(eager=2.41), config, fastest_shown=2.4) == 0.0, "noise"
    assert reward_of(verdict_of(eager=4.8), config, fastest_shown=2.4) == pytest.approx(1.0, rel=0.01)
    assert reward_of(verdict_of(eager=1.2), config, fastest_shown=2.4) == 0.0


def test_by_default_what_the_prompt_shows_changes_nothing_as_in_the_paper() -> None:
    assert reward_of(verdict_of(eager=2.4), RewardConfig(), fastest_shown=2.4, is_copy=True) == 2.4


@given(st.lists(st.floats(0.01, 200.0), min_size=2, max_size=8), st.sampled_from(sorted(WORTHS)), st.floats(0.0, 0.5))
def test_no_worth_and_no_resolution_put_a_slower_program_before_a_faster_one(
    speedups: list[float], worth: str, resolution: float
) -> None:
    config = RewardConfig(worth=worth, resolution=resolution)
    rewards = [reward_of(verdict_of(eager=speedup), config, fastest_shown=1.5) for speedup in sorted(speedups)]
    assert rewards == sorted(rewards)
    assert all(0.0 <= reward <= config.max for reward in rewards)


def test_speedups_that_differ_by_noise_are_one_reward() -> None:
    config = RewardConfig(resolution=0.02)
    near = (0.993, 0.998, 1.0, 1.003, 1.009)
    assert len({reward_of(verdict_of(eager=speedup), config) for speedup in near}) == 1
    assert reward_of(verdict_of(eager=1.011), config) == pytest.approx(1.02)
    high = (28.8, 29.0, 29.2)
    assert len({reward_of(verdict_of(eager=speedup), config) for speedup in high}) == 1, "noise is relative"
