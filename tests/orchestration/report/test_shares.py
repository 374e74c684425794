"""Shares have intervals that hold for other tasks, also if no sample or every sample counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestration.report.shares import mean_share, share_of, wilson


@pytest.mark.parametrize(
    ("successes", "samples", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_the_published_intervals(successes: int, samples: int, low: float, high: float) -> None:
    """Newcombe 1998, table I, method 3."""
    assert wilson(successes / samples, samples) == pytest.approx((low, high), abs=5e-5)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=20))
@settings(deadline=None, max_examples=60)
def test_an_interval_holds_its_share_and_has_a_width(pairs: list[tuple[str, bool]]) -> None:
    estimate = share_of([flag for _, flag in pairs], [task for task, _ in pairs])
    assert estimate is not None
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert estimate.high > estimate.low


def test_an_interval_over_tasks_is_that_of_the_tasks_if_their_samples_agree() -> None:
    flags, tasks = [True] * 12 + [False] * 28, [f"t{index // 4}" for index in range(40)]
    alike, independent = share_of(flags, tasks), wilson(0.3, 40)
    assert alike is not None
    assert alike.low < wilson(0.3, 10)[0] < independent[0]
    assert alike.high > wilson(0.3, 10)[1] > independent[1]
    nothing = share_of([False] * 56, [f"t{index // 4}" for index in range(56)])
    assert nothing is not None
    assert (nothing.low, nothing.high) == (0.0, pytest.approx(wilson(0.0, 14)[1])), "14 tasks, and not 56 samples"


@pytest.mark.parametrize("spread", [0.0, 1.5])
def test_it_covers_the_share_of_all_tasks(spread: float) -> None:
    """Tasks whose chances have a logit of this spread; the share of all tasks is a half."""
    generator, runs, covered, of_means = np.random.default_rng(0), 400, 0, 0
    for _ in range(runs):
        chances = 1 / (1 + np.exp(-generator.normal(0, spread, 30)))
        flags = generator.random((30, 4)) < chances[:, None]
        estimate = share_of(list(flags.ravel()), [str(task) for task in range(30) for _ in range(4)])
        means = mean_share([float(value) for value in flags.mean(axis=1)])
        assert estimate is not None
        assert means is not None
        covered += estimate.low <= 0.5 <= estimate.high
        of_means += means.low <= 0.5 <= means.high
    assert 0.92 <= covered / runs <= 0.98
    assert 0.92 <= of_means / runs <= 0.98
