"""CUDA-L1's protocol: when a result is discarded, how it is rounded, and when it needs a second opinion."""

from __future__ import annotations

from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.timing.paper import (
    BUCKETS,
    agree,
    bucket_means,
    needs_confirmation,
    paper_estimate,
    toward_one,
)

speedups = st.floats(1e-3, 1e4)


@given(st.integers(BUCKETS, 120))
def test_buckets_hold_every_ratio_once_and_in_order(n) -> None:
    # A bucket differs from 0 only if it holds the ratio 1, and exactly one of seven does.
    owners = [
        [index for index, value in enumerate(bucket_means([float(i == place) for i in range(n)])) if value]
        for place in range(n)
    ]
    assert all(len(one) == 1 for one in owners)
    flat = [one[0] for one in owners]
    assert flat == sorted(flat)
    sizes = [flat.count(bucket) for bucket in range(BUCKETS)]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


def test_too_few_ratios_are_refused() -> None:
    with pytest.raises(ValueError, match=r"6 ratios do not fill 7"):
        bucket_means([1.0] * 6)


def test_a_steady_result_is_kept_and_one_that_drifts_is_discarded() -> None:
    steady = [1.5 + 0.2 * (-1) ** i for i in range(70)]  # noise within a bucket does not count
    estimate, finding = paper_estimate(steady)
    assert estimate.value == 1.5
    assert estimate.n == 70
    assert finding is None
    estimate, finding = paper_estimate([1.0 + i / 70 for i in range(70)])
    assert finding is not None
    assert (finding.kind, finding.severity) == ("variance", "suspect")
    assert estimate.low == pytest.approx(fmean(1.0 + i / 70 for i in range(10)))
    assert estimate.high == pytest.approx(fmean(1.0 + i / 70 for i in range(60, 70)))


@pytest.mark.parametrize(("variance", "discarded"), [(0.0049, False), (0.0051, True)])
def test_the_variance_allowed_is_the_papers(variance, discarded) -> None:
    step = (variance * 7 / 2) ** 0.5  # two of seven buckets are off by this, in opposite directions
    _, finding = paper_estimate([2.0, 2.0, 2.0 - step, 2.0, 2.0 + step, 2.0, 2.0])
    assert (finding is not None) == discarded


def test_one_bad_bucket_does_not_move_the_median() -> None:
    assert paper_estimate([1.25] * 60 + [9.0] * 10)[0].value == 1.25


@given(speedups)
def test_rounding_never_takes_a_figure_away_from_one(value) -> None:
    rounded = toward_one(value)
    assert abs(rounded - 1) <= abs(value - 1) + 1e-9
    assert abs(rounded - value) < 0.01 + 1e-9
    assert (rounded >= 1) == (value >= 1) or rounded == 1
    assert round(rounded * 100) == pytest.approx(rounded * 100)
    assert toward_one(rounded) == rounded


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(1.239, 1.23), (0.811, 0.82), (1.0, 1.0), (0.999, 1.0), (1.009, 1.0), (1.15, 1.15), (0.29, 0.29)],
)
def test_rounding_is_toward_one(value, rounded) -> None:
    assert toward_one(value) == rounded


@given(speedups, speedups)
def test_two_devices_agree_within_a_tenth_whoever_is_first(one, other) -> None:
    assert agree(one, other) == agree(other, one)
    assert agree(one, one)
    assert agree(one, 0.91 * one)
    assert not agree(one, 0.89 * one)
    assert not agree(one, 1.13 * one)


def test_a_result_that_is_too_good_needs_a_second_opinion() -> None:
    assert needs_confirmation(3.01)
    assert not needs_confirmation(3.0)
    assert needs_confirmation(2.5, best_so_far=1.2)
    assert not needs_confirmation(2.3, best_so_far=1.2)
    assert needs_confirmation(3.5, best_so_far=3.4)
