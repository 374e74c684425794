"""`fast_p` is KernelBench's own figure: the share of all tasks that are right and more than p times as fast."""

from __future__ import annotations

import numpy as np
import pytest

from orchestration.report.fast_p import ALL, FURTHER, THRESHOLDS, fast_p, fast_p_as_json
from orchestration.report.statistics import AssessmentRow
from tests.orchestration.report.samples import row, synthetic


def shares(rows: list[AssessmentRow], baseline: str = "eager", level: str = ALL) -> dict[float, float]:
    return {p: estimate.value for p, estimate in fast_p(rows, baseline)[level].items()}


def test_it_is_the_share_of_all_tasks_and_strictly_faster() -> None:
    rows = [row("level1/1", 2.0), row("level1/2", 1.0), row("level1/3", 0.6), row("level1/4", None)]
    assert shares(rows) == {0.0: 0.75, 0.5: 0.75, 0.8: 0.5, 1.0: 0.25, 1.5: 0.25, 2.0: 0.0}


def test_one_sample_a_task_gives_what_the_formula_on_times_gives() -> None:
    """Over the times of baseline and program of each task: the count of correct and baseline / time > p, over n."""
    generator = np.random.default_rng(0)
    times, baseline = generator.uniform(0.5, 4.0, 80), generator.uniform(0.5, 4.0, 80)
    correct = generator.random(80) < 0.7
    rows = [
        row(f"level1/{index}", float(baseline[index] / times[index]) if correct[index] else None) for index in range(80)
    ]
    for p, value in shares(rows).items():
        assert value == pytest.approx(np.sum(baseline[correct] / times[correct] > p) / 80)


def test_several_samples_give_what_one_gives_on_average() -> None:
    rows = [row("level1/1", 2.0), row("level1/1", None), row("level1/2", 3.5), row("level1/2", 1.2)]
    assert shares(rows)[1.0] == pytest.approx(0.75)
    assert shares(rows)[1.5] == pytest.approx(0.5)


def test_levels_stand_beside_all_of_them_and_a_single_one_does_not() -> None:
    rows = [row("level1/1", 2.0), row("level2/1", None), row("level2/10", 1.1), row("level10/2", 1.2)]
    found = fast_p(rows, "eager")
    assert list(found) == [ALL, "level 1", "level 2", "level 10"]
    assert (found["level 1"][1.0].value, found["level 2"][1.0].value, found[ALL][1.0].value) == (1.0, 0.5, 0.75)
    assert (found[ALL][1.0].n, found["level 2"][1.0].n) == (4, 2)
    assert list(fast_p(rows[:1], "eager")) == [ALL]
    assert fast_p([], "eager") == {}


def test_an_unknown_speed_up_is_right_but_never_faster() -> None:
    rows = [AssessmentRow("level1/1", "ok", {"eager": 3.0}), row("level1/2", 2.0, best=1.2)]
    assert shares(rows, "torch_compile")[0.0] == 1.0
    assert shares(rows, "torch_compile")[0.5] == 0.5
    assert shares(rows)[1.5] == 1.0


def test_json_has_every_baseline_level_and_threshold_with_intervals() -> None:
    found = fast_p_as_json(synthetic(0))
    assert list(found) == ["eager", "torch_compile"]
    by_p = found["eager"][ALL]
    assert list(by_p) == [f"{p:g}" for p in (*THRESHOLDS, *FURTHER)]
    values = [each["value"] for each in by_p.values()]
    assert values == sorted(values, reverse=True)
    assert all(each["low"] <= each["value"] <= each["high"] and each["n"] == 12 for each in by_p.values())
