"""How long candidates take on each type: measured, scaled from another type, or from a table."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cluster.cost.rates import Rate
from orchestration.plan.earlier import EarlierRun, Judged
from orchestration.plan.sizes import MOST_SLICES, measure_sizes

TASKS = [f"task{number:02d}" for number in range(40)]


def run(arch: str, seconds: dict[str, list[float]], name: str = "earlier") -> EarlierRun:
    judged = [Judged(task, arch, "fast", value) for task, values in seconds.items() for value in values]
    return EarlierRun(name, tuple(judged), None, None)


def test_slices_hold_tasks_of_one_size() -> None:
    seconds = {task: [float(number), float(number) + 0.5] for number, task in enumerate(TASKS, start=1)}
    sizes = measure_sizes([run("H200", seconds)], {}, ["H200"], "fast")
    slices = sizes.seconds["H200"]
    assert len(slices) == MOST_SLICES
    assert sizes.weights == pytest.approx(np.full(MOST_SLICES, 1 / MOST_SLICES))
    assert all(lower.max() < upper.min() for lower, upper in pairwise(slices))
    assert sizes.mean("H200") == pytest.approx(np.mean([value for values in seconds.values() for value in values]))
    assert sizes.longest("H200") == 40.5


def test_a_task_is_never_cut() -> None:
    sizes = measure_sizes([run("H200", {"small": [1.0], "large": [5.0, 1.0, 9.0] * 30})], {}, ["H200"], "fast")
    assert [len(one) for one in sizes.seconds["H200"]] == [1, 90]


def test_a_type_that_judged_some_tasks_is_scaled_to_the_others() -> None:
    """Two tasks are known on both types, where the small one takes three times as long."""
    reference = run("H200", {"a": [1.0] * 10, "b": [2.0] * 10, "c": [10.0] * 10})
    other = run("L40S", {"a": [3.0] * 4, "b": [6.0] * 4}, "second")
    sizes = measure_sizes([reference, other], {}, ["H200", "L40S"], "fast")
    assert [one.mean() for one in sizes.seconds["L40S"]] == pytest.approx([3.0, 6.0, 30.0])
    assert sizes.basis["L40S"] == "measured: 8 verdicts of second"


def test_what_was_measured_counts_more_than_a_rate() -> None:
    rates = {"H200": Rate(1.0, "fast", "a table"), "L40S": Rate(900.0, "fast", "a table")}
    sizes = measure_sizes([run("H200", {"a": [1.0, 3.0]})], rates, ["H200", "L40S"], "fast")
    assert sizes.mean("H200") == pytest.approx(2.0)
    assert sizes.mean("L40S") == pytest.approx(4.0)
    assert sizes.longest("L40S") == pytest.approx(6.0)  # as far apart as those that were measured
    assert sizes.basis["L40S"] == "rate: a table"


def test_without_any_run_the_rate_alone_is_known() -> None:
    sizes = measure_sizes([], {"H200": Rate(1800.0, "fast", "a table")}, ["H200"], "fast")
    assert sizes.mean("H200") == sizes.longest("H200") == pytest.approx(2.0)


def test_what_was_timed_at_another_preset_is_not_used() -> None:
    rates = {"L40S": Rate(900.0, "fast", "a table")}
    sizes = measure_sizes([run("H200", {"a": [1.0]})], rates, ["H200", "L40S"], "thorough")
    assert sizes.seconds == {}
    assert set(sizes.lacking) == {"H200", "L40S"}
    assert "preset thorough" in sizes.lacking["H200"]
