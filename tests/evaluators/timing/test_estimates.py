"""Intervals contain the true value as often as they claim."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.records import Estimate
from evaluators.timing.estimates import calibrated_estimate, combine, divide, median_estimate


@pytest.mark.parametrize("n", [6, 10, 25, 60])
def test_the_interval_covers_the_true_median(n) -> None:
    random = np.random.default_rng(7)
    samples = random.lognormal(mean=0.5, sigma=1.0, size=(400, n))  # skewed, as timings are
    estimates = [median_estimate(list(row)) for row in samples]
    covered = sum(one.low <= np.exp(0.5) <= one.high for one in estimates)
    assert covered >= 0.93 * 400


def test_more_samples_make_a_narrower_interval() -> None:
    random = np.random.default_rng(7)
    few, many = (median_estimate(list(random.normal(1, 0.1, n))) for n in (10, 1000))
    assert many.high - many.low < 0.3 * (few.high - few.low)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=80))
def test_an_estimate_lies_within_its_interval_and_its_values(values) -> None:
    estimate = median_estimate(values)
    assert min(values) <= estimate.low <= estimate.value <= estimate.high <= max(values)
    assert estimate.n == len(values)


def test_no_values_make_no_estimate() -> None:
    with pytest.raises(ValueError, match="no values"):
        median_estimate([])


estimates = st.tuples(st.floats(0.1, 10), st.floats(0, 0.5), st.floats(0, 0.5)).map(
    lambda part: Estimate(part[0], part[0] * (1 - part[1]), part[0] * (1 + part[2]), 10)
)


@given(estimates, estimates)
def test_a_ratio_is_no_surer_than_its_parts(one, other) -> None:
    ratio = divide(one, other)
    assert ratio.value == pytest.approx(one.value / other.value)
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.low / ratio.value <= one.low / one.value + 1e-9
    assert ratio.high / ratio.value >= one.high / one.value - 1e-9
    assert ratio.low >= one.low / other.high - 1e-9
    exact = divide(one, Estimate(2.0, 2.0, 2.0, 5))
    assert (exact.low, exact.high, exact.n) == (pytest.approx(one.low / 2), pytest.approx(one.high / 2), 5)


def test_one_pair_of_processes_keeps_its_value_and_gets_a_wider_interval() -> None:
    known = combine([Estimate(2.0, 1.9, 2.2, 30)], 0.05)
    extra = 1.96 * 0.05 * 2.0
    assert known.value == 2.0
    assert known.low == pytest.approx(2.0 - math.hypot(0.1, extra), rel=1e-4)
    assert known.high == pytest.approx(2.0 + math.hypot(0.2, extra), rel=1e-4)
    assert combine([Estimate(2.0, 1.9, 2.2, 30)], 0.0) == Estimate(2.0, 1.9, 2.2, 30)


def test_one_odd_pair_of_processes_does_not_decide() -> None:
    usual, odd = Estimate(1.0, 0.99, 1.01, 20), Estimate(1.4, 1.39, 1.41, 20)
    assert combine([usual, odd, usual], 0.01).value == 1.0
    assert combine([usual, usual, usual], 0.01).n == 60
    with pytest.raises(ValueError, match="no estimates"):
        combine([], 0.01)


@pytest.mark.parametrize("processes", [1, 3, 5])
def test_the_interval_contains_the_difference_between_processes(processes) -> None:
    random = np.random.default_rng(3)
    spread, within, held = 0.01, 0.004, 0
    for _ in range(600):
        found = []
        for _ in range(processes):
            rounds = 1 + random.normal(0, spread) + random.normal(0, within * 4, size=24)
            found.append(median_estimate(list(rounds)))
        estimate = combine(found, spread)
        held += estimate.low <= 1 <= estimate.high
    assert 0.92 <= held / 600 <= 0.985


# Measurements and calibrations


@pytest.mark.parametrize(("measured", "calibrations"), [(16, 10), (24, 10), (40, 10), (24, 3)])
def test_the_interval_contains_the_uncertainty_of_the_calibration(measured, calibrations) -> None:
    random = np.random.default_rng(measured + calibrations)
    held, widths, trials = 0, [], 1000
    for _ in range(trials):
        offset = random.normal(0, 1)
        values = offset + random.standard_t(4, measured)
        known = offset + random.standard_t(4, calibrations)
        estimate = calibrated_estimate([list(values - one) for one in known])
        assert estimate.low <= estimate.value <= estimate.high
        assert estimate.n == measured
        held += estimate.low <= 0 <= estimate.high
        widths.append(estimate.high - estimate.low)
    assert 0.92 <= held / trials <= 0.98
    without = median_estimate(list(random.standard_t(4, measured)))
    assert np.median(widths) > without.high - without.low


def test_one_calibration_is_taken_to_be_exact() -> None:
    values = [1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 1.7]
    assert calibrated_estimate([values]) == median_estimate(values)


def test_nothing_measured_or_calibrated_is_no_estimate() -> None:
    for values in ([], [[], []]):
        with pytest.raises(ValueError, match="no values"):
            calibrated_estimate(values)
