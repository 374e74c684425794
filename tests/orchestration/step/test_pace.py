"""A rate limit, on a clock of the test's own."""

from __future__ import annotations

import pytest

from orchestration.step.pace import Pace


@pytest.mark.parametrize("per_minute", [0.5, 7.0, 600.0])
def test_requests_that_come_at_once_begin_at_even_distances(per_minute: float) -> None:
    pace = Pace(per_minute)
    begins = [100.0 + pace.wait(100.0) for _ in range(20)]
    assert begins == pytest.approx([100.0 + 60.0 / per_minute * index for index in range(20)])


def test_no_minute_has_more_than_so_many_whenever_they_come() -> None:
    pace = Pace(6.0)
    begins = [now + pace.wait(now) for now in (0.0, 0.0, 0.0, 1.0, 29.0, 31.0, 200.0, 200.0, 205.0)]
    assert begins == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 200.0, 210.0, 220.0]
    assert all(sum(start <= begun < start + 60.0 for begun in begins) <= 6 for start in begins)


def test_without_a_limit_nothing_waits() -> None:
    pace = Pace(0.0)
    assert [pace.wait(5.0) for _ in range(3)] == [0.0, 0.0, 0.0]
