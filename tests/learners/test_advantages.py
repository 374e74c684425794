"""Properties of smoothing and group normalisation that hold for all rewards."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learners.advantages import (
    RunningStatistics,
    advantages_of,
    deviation_of,
    flag_advantages,
    group_advantages,
    smooth_rewards,
)

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


# Duplicates, and rewards that stay small


def rewards_of(programs: list[str], worth: dict[str, float]) -> list[float | None]:
    return [worth[program] for program in programs]


WORTH = {"a": 0.0, "b": 1.0, "c": 1.7, "d": 3.1, "e": 3.2}


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=12), st.booleans())
def test_duplicates_weigh_together_as_much_as_one_program(programs: list[str], scale: bool) -> None:
    once = list(dict.fromkeys(programs))
    (alone,) = advantages_of([rewards_of(once, WORTH)], ["t"], RunningStatistics(), 1.5, scale=scale)
    (shared,) = advantages_of(
        [rewards_of(programs, WORTH)], ["t"], RunningStatistics(), 1.5, scale=scale, programs=[programs]
    )
    for program, advantage in zip(once, alone, strict=True):
        copies = [value for of, value in zip(programs, shared, strict=True) if of == program]
        assert len(set(copies)) == 1
        assert sum(copies) == pytest.approx(advantage)
    assert sum(shared) == pytest.approx(0.0, abs=1e-9)


def test_a_frequent_program_moves_the_policy_no_further_than_a_rare_one() -> None:
    programs = ["common"] * 6 + ["rare", "wrong"]
    rewards: list[float | None] = [2.0] * 7 + [0.0]
    (plain,) = advantages_of([rewards], ["t"], RunningStatistics(), 1.5)
    (shared,) = advantages_of([rewards], ["t"], RunningStatistics(), 1.5, programs=[programs])
    assert sum(plain[:6]) == pytest.approx(6 * plain[6])
    assert sum(shared[:6]) == pytest.approx(shared[6])
    assert shared[7] < 0 < shared[6]


def test_the_statistics_count_a_program_once() -> None:
    statistics, once = RunningStatistics(), RunningStatistics()
    advantages_of([[2.0, 2.0, 2.0, 0.0]], ["t"], statistics, 1.5, programs=[["a", "a", "a", "b"]])
    advantages_of([[2.0, 0.0]], ["t"], once, 1.5)
    assert statistics.state_dict() == once.state_dict()


def test_neutral_copies_have_no_advantage() -> None:
    (shared,) = advantages_of(
        [[None, None, 1.0, 2.0]], ["t"], RunningStatistics(), 1.5, programs=[["a", "a", "b", "c"]]
    )
    assert shared[:2] == [0.0, 0.0]
    assert shared[2] < 0 < shared[3]


@given(st.lists(st.sampled_from([0.0, 1.0, None]), min_size=1, max_size=12), st.floats(0.01, 1.0))
def test_a_small_reward_has_small_advantages_whatever_the_group(flags: list[float | None], weight: float) -> None:
    full, small = flag_advantages(flags, 1.0), flag_advantages(flags, weight)
    assert small == pytest.approx([weight * value for value in full])
    for flag, value in zip(flags, small, strict=True):
        assert value >= 0 if flag else value <= 0
        if flag is None:
            assert value == 0.0


@given(rewards_lists)
def test_the_variation_of_a_group_is_between_none_and_the_clip(rewards: list[float]) -> None:
    statistics = RunningStatistics()
    statistics.update("t", rewards)
    assert 0.0 <= deviation_of(rewards, statistics.of("t"), 1.5) <= 1.5
    assert deviation_of([rewards[0]] * 4, statistics.of("t"), 1.5) == pytest.approx(0.0, abs=1e-9)
    assert deviation_of([None, None], statistics.of("t"), 1.5) == 0.0


def test_a_task_solved_half_of_the_time_varies_most() -> None:
    def varied(right: int) -> float:
        rewards: list[float | None] = [1.0] * right + [0.0] * (16 - right)
        statistics = RunningStatistics()
        statistics.update("t", [reward for reward in rewards if reward is not None])
        return deviation_of(rewards, statistics.of("t"), 1.5)

    assert varied(0) == varied(16) == 0.0
    assert varied(1) < varied(3) < varied(8)
    assert varied(15) < varied(8)
