"""Seconds of a judgement add up by kind of work, and count once."""

from __future__ import annotations

import pytest

from evaluators.judge.costs import Costs


def test_costs_of_one_name_add_up_even_where_the_work_fails() -> None:
    costs = Costs()
    with costs("calls"):
        pass
    first = costs.seconds["calls"]
    with pytest.raises(ValueError, match="stop"), costs("calls"):
        raise ValueError("stop")
    assert costs.seconds["calls"] > first > 0


def test_seconds_within_a_block_count_for_the_outermost_block_alone() -> None:
    costs = Costs()
    with costs("distributions"):
        costs.add("outside_calls", 5.0)
        with costs("calls"):
            pass
    assert set(costs.seconds) == {"distributions"}
    costs.add("outside_calls", 5.0)
    assert costs.seconds["outside_calls"] == 5.0
