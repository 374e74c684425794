"""Figures of a stage's samples, and their intervals."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestration.report.bootstrap import weighted_quantile
from orchestration.report.statistics import summarise, summarise_tasks
from tests.orchestration.report.samples import drawn, row, synthetic


def test_percentiles_are_those_of_numpy_and_their_intervals_hold_them():
    rows = synthetic(3)
    speeds = [each.over_eager for each in rows if each.over_eager is not None]
    made = summarise(rows, "x").over_eager
    found = [made.lower.value, made.median.value, made.upper.value]
    assert found == pytest.approx(list(np.quantile(speeds, (0.25, 0.5, 0.75))))
    assert made.most == max(speeds)
    for estimate in (made.lower, made.upper):
        assert estimate.low < estimate.value < estimate.high
    assert made.lower.high < made.upper.low, "tasks differ enough to tell them apart"


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=20), st.sampled_from([0.25, 0.5, 0.75]))
@settings(deadline=None, max_examples=60)
def test_a_weighted_quantile_has_its_share_of_the_weight_on_either_side(values, share):
    weights = np.random.default_rng(len(values)).integers(0, 4, (50, len(values))).astype(float)
    numbers = np.array(values)
    for each, quantile in zip(weights, weighted_quantile(numbers, weights, share), strict=True):
        if not each.sum():
            assert math.isnan(quantile)
            continue
        assert each[numbers < quantile - 1e-9].sum() <= share * each.sum() + 1e-9
        assert each[numbers > quantile + 1e-9].sum() <= (1 - share) * each.sum() + 1e-9


@pytest.mark.slow
def test_the_intervals_of_percentiles_cover_those_of_all_tasks():
    """Of tasks whose geometric means are drawn from a normal distribution, whose quartiles are known."""
    covered = 0
    truth = float(np.exp(NormalDist(0.0, math.hypot(0.5, 0.3)).inv_cdf(0.75)))
    for seed in range(200):
        upper = summarise(drawn(seed, 40, 4, spread=0.5), "x").over_eager.upper
        covered += upper.low <= truth <= upper.high
    assert 0.9 <= covered / 200 <= 0.99


def test_figures_are_those_of_the_correct_samples():
    rows = [row("a", 1.0, 0.8), row("a", 4.0, 2.0), row("b", 2.0, 1.005), row("b", None), row("c", None)]
    summary = summarise(rows, "sft")
    assert (summary.tasks, summary.samples, summary.correct, summary.success.value) == (3, 5, 2, 0.6)
    speeds = summary.over_eager
    assert speeds.mean.value == pytest.approx(7 / 3)
    assert (speeds.median.value, speeds.geometric_mean.value, speeds.mean.n) == (2.0, pytest.approx(2.0), 3)
    assert summary.over_best.mean.value == pytest.approx((0.8 + 2.0 + 1.005) / 3)
    assert summary.improved.value == 0.2, "of all samples, only 2.0x is more than 1.01x over the best baseline"
    assert summary.faster.value == 0.4, "4.0x and 2.0x are more than 1.01x over eager"
    assert summary.copies is None, "no sample was checked for copies"


def test_copies_are_a_share_of_all_samples_and_only_correct_ones_count():
    checked = [replace(row("a", 1.0), copy_of="reference"), replace(row("a", 1.2), copy_of="exemplar"), row("b", None)]
    assert summarise([*checked, replace(row("b", None), copy_of="reference")], "sft").copies.value == 0.25
    assert summarise([*checked, row("b", 1.0)], "sft").copies is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.floats(0.01, 100))), min_size=0, max_size=12))
@settings(deadline=None, max_examples=40)
def test_no_figure_is_ever_nan_and_every_interval_holds_its_value(pairs):
    rows = [row(task, speed) for task, speed in pairs]
    summary = summarise(rows, "x")
    speeds = [getattr(side, name) for side in (summary.over_eager, summary.over_best) for name in SPEED_NAMES]
    for estimate in [summary.success, summary.improved, summary.faster, *speeds]:
        if estimate is not None:
            assert all(math.isfinite(value) for value in (estimate.value, estimate.low, estimate.high))
            assert estimate.low <= estimate.value <= estimate.high
    assert (speeds[0] is None) == all(speed is None for _, speed in pairs)
    assert (summary.success is None) == (not pairs)


SPEED_NAMES = ("mean", "median", "geometric_mean")


def test_a_stage_of_failures_has_a_success_rate_and_no_speed_ups():
    summary = summarise([row("a", None)] * 4, "base")
    assert summary.success.value == 0
    assert summary.over_eager.mean is None
    assert summary.over_best.median is None


def test_tasks_that_differ_make_an_interval_wide_however_alike_their_samples_are():
    rows = [row("slow", 1.0)] * 4 + [row("fast", 9.0)] * 4
    mean = summarise(rows, "x").over_eager.mean
    assert (mean.low, mean.value, mean.high) == pytest.approx((1.0, 5.0, 9.0))
    alone = summarise([row("one", 1.0), row("one", 3.0)], "x").over_eager.mean
    assert alone.low < alone.value < alone.high, "a single task says nothing about others: its samples vary"


def test_what_is_new_is_neither_a_copy_nor_a_lesson():
    right = replace(row("a", 2.0), copy_of="")
    rows = [
        right,
        replace(right, copy_of="reference"),
        replace(right, is_lesson=True),
        replace(right, is_lesson=True, copy_of="reference"),
        replace(row("a", 0.5), copy_of=""),
        replace(row("b", None), is_lesson=True),
        row("b", None),
        row("b", None),
    ]
    summary = summarise(rows, "sft")
    assert [summary.success.value, summary.copies.value, summary.lessons.value] == [5 / 8, 2 / 8, 2 / 8]
    assert [summary.new.value, summary.new_faster.value, summary.faster.value] == [2 / 8, 1 / 8, 4 / 8]
    assert summary.lessons_of_correct == pytest.approx(2 / 5)
    unchecked = summarise([*rows, row("b", 1.5)], "sft")
    assert (unchecked.new, unchecked.new_faster, unchecked.lessons.value) == (None, None, 2 / 9)


def test_own_kernels_are_counted_among_right_samples_and_only_where_a_gpu_was_watched():
    own, others = replace(row("a", 2.0), has_own_kernel=True), replace(row("b", 2.0), has_own_kernel=False)
    assert summarise([own, others, others, row("b", None)], "x").own_kernel.value == pytest.approx(1 / 3)
    assert summarise([own, row("b", 1.0)], "x").own_kernel is None
    assert summarise([row("b", None)], "x").own_kernel is None


def test_tasks_of_one_sample_still_give_an_interval():
    mean = summarise([row(f"t{index}", 1.0 + index) for index in range(8)], "x").over_eager.mean
    assert mean.low < mean.value < mean.high


def test_the_same_rows_give_the_same_summary():
    assert summarise(synthetic(1), "x") == summarise(synthetic(1), "x")


def test_every_task_has_a_summary():
    first, second = summarise_tasks([row("b", None), row("a", 1.0), row("a", 3.0)])
    assert (first.task_id, first.correct, first.samples, first.mean, first.best) == ("a", 2, 2, 2.0, 3.0)
    assert (second.task_id, second.correct, second.mean, second.best) == ("b", 0, None, None)
