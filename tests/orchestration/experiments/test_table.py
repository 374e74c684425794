"""CUDA-L1's table of arms: the best program of each task, and intervals over tasks and seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from configs.schema import RunConfig
from orchestration.experiments.table import (
    best_of_tasks,
    compare_arms,
    estimate_over_tasks_and_seeds,
    table_of,
)
from orchestration.report import Report, build_report
from orchestration.run.directory import RunDirectory
from tests.orchestration.report.samples import row, write_step


def mean(values: np.ndarray) -> np.ndarray:
    return np.nanmean(values, axis=1)


def report(folder: Path, name: str, phase: str, speeds: dict[str, list[float | None]]) -> Report:
    """The report of a run whose last stage has one sample for each speed-up, and one more that does not compile."""
    run = RunDirectory(folder, name)
    run.write_config(RunConfig(name=name, root=str(folder)))
    run.write_held_out(["t3"])
    write_step(run, "assess/base", 0, {task: [9.0] for task in speeds})
    write_step(run, phase, 0, speeds)
    return build_report(run)


@pytest.fixture
def reports(tmp_path: Path) -> dict[str, list[Report]]:
    first = [{"t1": [1.0, 0.5], "t2": [None, 1.2], "t3": [2.0]}, {"t1": [1.0], "t2": [None], "t3": [2.0]}]
    second = [{"t1": [2.0, 4.0], "t2": [3.0, None], "t3": [1.0]}, {"t1": [4.0], "t2": [None], "t3": [8.0]}]
    return {
        "plain": [report(tmp_path, f"p{seed}", "assess/1-sft", speeds) for seed, speeds in enumerate(first)],
        "evolved": [report(tmp_path, f"e{seed}", "1-evolve", speeds) for seed, speeds in enumerate(second)],
    }


def test_the_last_stage_of_each_run_counts_by_its_tasks_best_programs(reports: dict[str, list[Report]]) -> None:
    training, held_out = compare_arms(reports)
    assert (training.title, held_out.title) == ("Training tasks", "Held-out tasks")
    best = {arm.name: arm.best.tolist() for arm in training.arms}
    assert best == {"plain": [[1.0, 1.2], [1.0, 0.0]], "evolved": [[4.0, 3.0], [4.0, 0.0]]}
    assert [arm.best.tolist() for arm in held_out.arms] == [[[2.0], [2.0]], [[1.0], [8.0]]]
    (constant,) = training.constants
    assert constant.name == "reference"
    assert np.unique(constant.best).tolist() == [1.0]


def test_the_table_has_the_papers_columns_and_each_arm_is_compared_with_the_first(
    reports: dict[str, list[Report]],
) -> None:
    table = table_of(compare_arms(reports)[0], seeds=2)
    assert table.columns == ("samples", "mean", "max", "75 %", "50 %", "25 %", "success", "> 1.01x", "times\nplain")
    cells = {name: [cell.value for cell in cells] for name, cells in (*table.rows, *table.others)}
    assert cells["plain"] == ["2.5", "0.80x", "1.20x", "1.05x", "1.00x", "0.75x", "75.0%", "25.0%", "-"]
    assert cells["evolved"][1:] == ["2.75x", "4.00x", "4.00x", "3.50x", "2.25x", "75.0%", "75.0%", "2.51x"]
    assert cells["reference"][1:] == ["1.00x"] * 5 + ["100.0%", "0.0%", "-"]
    assert table.rows[0][1][1].below, "the mean has an interval"
    assert not table.rows[0][1][2].below, "a maximum has none"


def test_a_task_without_a_right_sample_is_zero_and_without_any_it_is_no_value() -> None:
    rows = [row("a", 1.5), row("a", 1.2), row("b", None), row("elsewhere", 9.0)]
    assert np.array_equal(best_of_tasks(rows, ["a", "b", "c"]), [1.5, 0.0, np.nan], equal_nan=True)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """Tasks and seeds are drawn anew in each trial, as a study with other ones would draw them."""
    covered = 0
    for trial in range(120):
        generator = np.random.default_rng(trial)
        of_tasks, of_seeds = generator.normal(0, 1.0, 20), generator.normal(0, 0.2, 3)
        values = 3.0 + of_tasks[None, :] + of_seeds[:, None] + generator.normal(0, 0.3, (3, 20))
        estimate = estimate_over_tasks_and_seeds(values, mean)
        covered += estimate.low <= 3.0 <= estimate.high
    assert 0.88 <= covered / 120 <= 1.0


def test_a_seed_that_is_missing_for_a_task_leaves_it_out_alone() -> None:
    values = np.array([[1.0, 2.0], [3.0, np.nan]])
    assert estimate_over_tasks_and_seeds(values, mean).value == pytest.approx(2.0)
    single = estimate_over_tasks_and_seeds(np.array([[1.5]]), mean)
    assert (single.low, single.value, single.high) == (1.5, 1.5, 1.5)


def test_nothing_measured_gives_no_table(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "empty")
    run.write_config(RunConfig(name="empty", root=str(tmp_path)))
    assert compare_arms({"empty": [build_report(run)], "absent": []}) == []
