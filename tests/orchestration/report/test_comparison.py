"""Comparisons of one policy's samples with another's find real gains, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from evaluators.records import Estimate
from orchestration.report.bootstrap import resample
from orchestration.report.comparison import compare, compare_seeds, overall, overall_gain, pooled_gain
from tests.orchestration.report.samples import drawn, row, synthetic


def holds_zero(estimate: Estimate) -> bool:
    return estimate.low <= 0 <= estimate.high


def test_the_interval_of_a_difference_covers_no_difference_and_finds_a_real_one():
    covered, found = 0, 0
    for seed in range(60):
        covered += holds_zero(compare(synthetic(seed), synthetic(seed + 1000)).mean_over_eager)
        found += compare(synthetic(seed), synthetic(seed + 1000, gain=1.4)).mean_over_eager.low > 0
    assert covered >= 51
    assert found >= 54


def test_the_interval_of_the_gain_of_all_samples_covers_no_gain_and_finds_a_real_one():
    covered, found = 0, 0
    for seed in range(60):
        same = overall_gain(synthetic(seed), synthetic(seed + 1000))
        covered += same.low <= 1.0 <= same.high
        found += overall_gain(synthetic(seed), synthetic(seed + 1000, gain=1.4)).low > 1.0
    assert covered >= 51
    assert found >= 54


def test_overall_counts_a_failed_sample_as_the_reference():
    rows = [row("a", 4.0), row("a", None), row("b", 0.25), row("b", 16.0)]
    assert overall(rows).value == pytest.approx(2.0)
    assert overall(rows, "samples").low < 2.0 < overall(rows, "samples").high
    assert (overall(rows).low, overall(rows).high) == (2.0, 2.0), "both tasks are as fast"
    slow_ones_fail = [row("a", 4.0), row("a", None), row("b", None), row("b", 16.0)]
    assert overall_gain(rows, slow_ones_fail).value == pytest.approx(2**0.5)  # the reference, four times as fast
    assert overall_gain(rows, [row("a", None), row("a", None)]).value == pytest.approx(0.5)
    assert overall([]) is None
    assert overall_gain([], rows) is None


def test_a_stage_of_failures_compares_by_success_alone():
    comparison = compare([row("a", None)] * 4, [row("a", 2.0)] * 4)
    assert comparison.success.low > 0
    assert comparison.mean_over_eager is None


def test_seeds_are_pooled_as_pairs_and_each_is_given():
    before = [synthetic(seed, gain=1 + seed / 2) for seed in range(3)]
    after = [synthetic(seed + 10, samples=8, gain=1.5 + seed / 2) for seed in range(3)]
    pooled = compare_seeds(before, after)
    each = [compare(a, b) for a, b in zip(before, after, strict=True)]
    gain = pooled.difference.mean_over_eager
    mean_gain = sum(comparison.mean_over_eager.value for comparison in each) / 3
    assert gain.value == pytest.approx(mean_gain)
    assert gain.low > 0, "seeds are paired: they differ from each other by more than the gain"
    assert [one.mean_over_eager.value for one in pooled.per_seed] == [one.mean_over_eager.value for one in each]
    level = pooled.second.mean_over_eager
    assert level.value - pooled.first.mean_over_eager.value == pytest.approx(gain.value)
    assert level.high - level.low > gain.high - gain.low, "the mean itself varies with the seeds"
    with pytest.raises(ValueError, match="same seeds"):
        compare_seeds(before, after[:2])


@pytest.mark.parametrize("tasks", [14, 57])
@pytest.mark.parametrize("spread", [0.0, 0.1, 0.5])
def test_an_interval_over_tasks_holds_for_other_tasks_and_one_over_samples_does_not(tasks: int, spread: float) -> None:
    """Many runs on tasks that are drawn anew for each, at once, as `overall` would make an interval for each."""
    runs = [drawn(seed, tasks, 4, spread=spread) for seed in range(400)]
    logs = np.log([[each.over_eager for each in rows] for rows in runs])
    covered = {}
    for over in ("tasks", "samples"):
        (weights,) = resample([[each.task_id for each in runs[0]]], 0, over)
        levels = np.exp(weights @ logs.T / weights.sum(axis=1, keepdims=True))
        low, high = np.quantile(levels, [0.025, 0.975], axis=0)
        covered[over] = np.mean((low <= 1.0) & (high >= 1.0))
        level = overall(runs[0], over)
        assert (level.low, level.high) == pytest.approx((low[0], high[0]))
    assert 0.92 <= covered["tasks"] <= 0.98
    assert covered["samples"] < 0.6 or spread < 0.5


def test_a_gain_that_differs_by_task_is_compared_task_by_task() -> None:
    """Both sides have the same tasks, which differ by far more than the gain does."""
    runs, covered, found = 50, 0, 0
    for seed in range(runs):
        generator = np.random.default_rng(seed)
        levels, gains = generator.normal(0, 1.0, 40), generator.normal(np.log(1.2), 0.2, 40)
        before, after = (
            [row(f"t{index // 4}", float(np.exp(generator.normal(side[index // 4], 0.2)))) for index in range(160)]
            for side in (levels, levels + gains)
        )
        gain = overall_gain(before, after)
        covered += gain.low <= 1.2 <= gain.high
        found += gain.low > 1.0
    assert covered >= 44
    assert found >= 45, "without pairs, the spread of the tasks would hide it"


def test_seeds_share_their_tasks_so_more_seeds_say_little_about_other_tasks():
    one = drawn(0, 20, 8, spread=0.6, gain=1.5)
    reference = [row(each.task_id, 1.0) for each in one]
    single, thrice = (pooled_gain([reference] * n, [one] * n) for n in (1, 3))
    assert (thrice.value, thrice.low, thrice.high) == pytest.approx((single.value, single.low, single.high))
    apart = [one, drawn(0, 20, 8, spread=0.6, gain=4.0)]
    assert pooled_gain([reference] * 2, apart).high > 1.5 * pooled_gain([reference], apart[:1]).high
    assert pooled_gain([reference, []], apart) is None
    with pytest.raises(ValueError, match="same seeds"):
        pooled_gain([reference], apart)
