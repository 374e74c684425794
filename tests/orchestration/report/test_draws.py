"""What several samples are worth is the exact mean over all subsets of them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.report.comparison import overall
from orchestration.report.draws import best_of, pass_at, summarise_draws
from tests.orchestration.report.samples import row


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=8), st.integers(1, 8))
def test_the_best_of_k_is_the_mean_over_all_subsets(values: list[float], k: int) -> None:
    if k > len(values):
        with pytest.raises(ValueError, match="needs at least"):
            best_of(k, values)
        return
    assert best_of(k, values) == pytest.approx(fmean(map(max, combinations(values, k))))


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(1, 8))
def test_pass_at_k_is_the_share_of_the_subsets_with_a_pass(passes: list[bool], k: int) -> None:
    if k > len(passes):
        with pytest.raises(ValueError, match="needs at least"):
            pass_at(k, len(passes), sum(passes))
        return
    assert pass_at(k, len(passes), sum(passes)) == pytest.approx(fmean(map(any, combinations(passes, k))))


def test_it_has_the_values_of_the_papers_own_program() -> None:
    """1 - prod(1 - k / i for i in n - c + 1 .. n), figure 3 of Chen et al. 2021."""
    for n, c, k in [(200, 3, 100), (16, 2, 8), (4, 1, 4)]:
        assert pass_at(k, n, c) == pytest.approx(1 - math.prod(1 - k / i for i in range(n - c + 1, n + 1)))


def checked(task: str, speed: float | None, copy_of: str = "") -> object:
    return replace(row(task, speed), copy_of=copy_of)


def test_a_summary_is_over_tasks_and_has_the_sizes_that_samples_allow() -> None:
    rows = [checked("a", 4.0), *[checked("a", None)] * 3, *[checked("b", 2.0, "reference")] * 4]
    one, four = summarise_draws(rows)
    assert (one.k, four.k, four.tasks) == (1, 4, 2)
    assert (one.correct.value, four.correct.value) == (pytest.approx(0.625), 1.0)
    assert (one.faster.value, four.faster.value) == (pytest.approx(0.125), 0.5)
    assert one.best.value == pytest.approx(overall(rows).value)
    assert four.best.value == pytest.approx(8**0.5)
    assert four.correct.low < 1.0, "two tasks cannot say that every task is solved"
    assert four.best.low <= 8**0.5 <= four.best.high
    assert [summary.k for summary in summarise_draws(rows[:5])] == [1, 4]
    assert summarise_draws(rows[:5])[1].tasks == 1
    assert [summary.k for summary in summarise_draws([*rows[:5], checked("c", None)])] == [1]
    assert summarise_draws([row("a", 2.0)])[0].faster is None, "not checked for copies"
    assert summarise_draws([]) == []
