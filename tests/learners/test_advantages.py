"""Properties of smoothing and group normalisation that hold for all rewards."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learners.advantages import RunningStatistics, advantages_of, group_advantages, smooth_rewards

rewards_lists = st.lists(st.floats(0.0, 100.0), min_size=2, max_size=12)


def smoothed(rewards: list[float], clip: float = 1.5) -> list[float]:
    statistics = RunningStatistics(0.9)
    statistics.update("task", rewards)
    return smooth_rewards(rewards, statistics.of("task"), clip)


@given(rewards_lists, rewards_lists)
def test_smoothing_never_reorders_rewards(before: list[float], rewards: list[float]) -> None:
    statistics = RunningStatistics(0.9)
    statistics.update("task", before)
    statistics.update("task", rewards)
    ordered = smooth_rewards(sorted(rewards), statistics.of("task"), 1.5)
    assert ordered == sorted(ordered)
    assert all(-1.5 <= value <= 1.5 for value in ordered)


@given(
    st.lists(st.integers(0, 1000), min_size=2, max_size=12),
    st.integers(-50, 50),
    st.sampled_from([0.5, 2.0, 8.0]),
)
def test_smoothing_ignores_shift_and_scale_of_rewards(rewards: list[int], shift: int, scale: float) -> None:
    plain = [reward / 16 for reward in rewards]
    assert smoothed([scale * reward + shift for reward in plain]) == pytest.approx(smoothed(plain), abs=1e-9)


@given(st.floats(0.0, 100.0), st.integers(1, 8))
def test_equal_rewards_carry_no_signal(reward: float, count: int) -> None:
    rewards = [reward] * count
    assert smoothed(rewards) == pytest.approx([0.0] * count)
    assert advantages_of([rewards], ["task"], RunningStatistics(0.9), 1.5) == [[0.0] * count]


def test_smoothing_is_the_clipped_standard_score() -> None:
    statistics = RunningStatistics(0.5)
    statistics.update("task", [1.0, 3.0])  # mean 2, deviation 1
    assert smooth_rewards([0.0, 2.0, 2.5, 9.0], statistics.of("task"), 1.5) == [-1.5, 0.0, 0.5, 1.5]


def test_running_statistics_are_those_of_the_weighted_mixture() -> None:
    statistics = RunningStatistics(0.75)
    statistics.update("task", [0.0, 2.0])  # mean 1, variance 1
    statistics.update("task", [4.0, 6.0])  # mean 5, variance 1
    moments = statistics.of("task")
    assert moments.mean == pytest.approx(2.0)
    assert moments.variance == pytest.approx(1.0 + 0.75 * 0.25 * 16.0)


def test_each_task_has_running_statistics_of_its_own() -> None:
    statistics = RunningStatistics()
    advantages_of([[1.0, 3.0], [10.0, 30.0]], ["a", "b"], statistics, 1.5)
    assert (statistics.of("a").mean, statistics.of("b").mean) == (2.0, 20.0)


def test_running_statistics_survive_json() -> None:
    statistics = RunningStatistics(0.9)
    statistics.update("task", [0.1, 0.7, 2.3])
    restored = RunningStatistics(0.9)
    restored.load_state_dict(json.loads(json.dumps(statistics.state_dict())))
    assert restored.of("task") == statistics.of("task")


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_rewards_that_are_not_finite_are_refused(reward: float) -> None:
    with pytest.raises(ValueError, match="task-7 is"):
        RunningStatistics(0.9).update("task-7", [1.0, reward])


def test_advantages_without_scale_keep_the_deviations_of_their_groups() -> None:
    rewards = torch.tensor([[0.0, 2.0], [0.0, 8.0], [3.0, 3.0]], dtype=torch.float64)
    assert group_advantages(rewards, scale=False).tolist() == [[-1.0, 1.0], [-4.0, 4.0], [0.0, 0.0]]
    statistics = RunningStatistics(0.0)
    scaled, plain = (
        advantages_of([[0.0, 0.0, 0.0, 2.0]], ["task"], statistics, 1.5, scale=s)[0] for s in (True, False)
    )
    assert sum(plain) == pytest.approx(0.0)
    assert max(plain) < max(scaled)


def test_group_advantages_have_zero_mean_and_unit_deviation_if_there_is_a_signal() -> None:
    advantages = group_advantages(torch.tensor([[0.0, 1.0, 2.0, 5.0], [1.0, 1.0, 1.0, 1.0]], dtype=torch.float64))
    assert advantages[0].mean().item() == pytest.approx(0.0, abs=1e-12)
    assert advantages[0].pow(2).mean().item() == pytest.approx(1.0)
    assert advantages[1].tolist() == [0.0] * 4


def test_groups_of_unequal_size_are_normalised_one_by_one() -> None:
    advantages = advantages_of([[0.0, 2.0], [1.0, 1.0, 1.0], []], ["a", "b", "c"], RunningStatistics(0.9), 1.5)
    assert advantages == [pytest.approx([-1.0, 1.0]), [0.0, 0.0, 0.0], []]


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_responses_worse_than_their_group_may_count_less_and_better_ones_count_as_before(weight: float) -> None:
    groups, keys = [[0.0, 0.0, 1.0, 3.0], [2.0, 2.0]], ["a", "b"]
    whole = advantages_of(groups, keys, RunningStatistics(0.9), 1.5)
    weighed = advantages_of(groups, keys, RunningStatistics(0.9), 1.5, negative_weight=weight)
    for ours, theirs in zip(weighed, whole, strict=True):
        assert ours == [pytest.approx(one if one > 0 else weight * one) for one in theirs]
    assert max(whole[0]) > 0 > min(whole[0])


def test_a_neutral_reward_gets_no_advantage_and_does_not_change_those_of_others() -> None:
    with_suspect, without = RunningStatistics(0.9), RunningStatistics(0.9)
    suspect = advantages_of([[0.0, None, 3.0, 1.0]], ["task"], with_suspect, 1.5)[0]
    plain = advantages_of([[0.0, 3.0, 1.0]], ["task"], without, 1.5)[0]
    assert suspect == [plain[0], 0.0, plain[1], plain[2]]
    assert with_suspect.state_dict() == without.state_dict()
    assert advantages_of([[None, None]], ["new"], with_suspect, 1.5) == [[0.0, 0.0]]


def test_failures_take_part_with_reward_zero() -> None:
    statistics = RunningStatistics(0.9)
    advantages = advantages_of([[0.0, 0.0, 0.0, 2.0]], ["task"], statistics, 1.5)[0]
    assert statistics.of("task").mean == pytest.approx(0.5)
    assert advantages[3] > 0 > advantages[0]
