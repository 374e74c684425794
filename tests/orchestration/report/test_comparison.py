"""Comparisons of one policy's samples with another's find real gains, and no others."""

from __future__ import annotations

import pytest

from evaluators.records import Estimate
from orchestration.report.comparison import compare, compare_seeds, overall, overall_gain
from tests.orchestration.report.samples import row, synthetic


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
    assert overall(rows).low < 2.0 < overall(rows).high
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
