"""Calls of a burst go through all turns of the driver's launches alike, however many launches a call has."""

from __future__ import annotations

from collections import Counter

import pytest

from evaluators.runner.turns import LAUNCH_TURNS, launches_before


@pytest.mark.parametrize("launches", range(1, 2 * LAUNCH_TURNS + 1))
@pytest.mark.parametrize(("warm", "measured"), [(2, 16), (2, 8), (1, 8)])
def test_measured_calls_have_all_turns_equally_often(launches: int, warm: int, measured: int) -> None:
    made, turns = 0, []
    for place in range(warm + measured):
        made += launches_before(place)
        turns.append(made % LAUNCH_TURNS)  # of the call's first launch
        made += launches
    assert Counter(turns[warm:]) == dict.fromkeys(range(LAUNCH_TURNS), measured // LAUNCH_TURNS)
