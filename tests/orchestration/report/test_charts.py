"""The plots of a page say what the report says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from configs.schema import RunConfig
from orchestration.report import build_report
from orchestration.report.assemble import Report
from orchestration.report.charts import Chart, busy_curve, curves, safe_json, strips_of
from orchestration.report.heat import heat_map, task_speeds
from orchestration.report.sparks import sparks_of
from orchestration.run.directory import RunDirectory
from tests.orchestration.report.full_run import write_full_run
from tests.orchestration.report.samples import write_step


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    root = tmp_path_factory.mktemp("runs")
    return [build_report(write_full_run(root, name, gain)[0].run) for name, gain in (("first", 1.0), ("second", 1.5))]


def chart(reports: list[Report], title: str) -> Chart:
    return next(each for each in curves(reports) if each.title.startswith(title))


def test_a_curve_has_a_line_for_each_run_and_a_part_for_each_phase(reports: list[Report]) -> None:
    made = chart(reports, "Mean speed-up")
    assert [line.name for line in made.lines] == ["first", "second"]
    assert [len(line.paths) for line in made.lines] == [2, 2]
    assert made.lines[0].paths[0].endswith("h0"), "a lone step is a dot"
    assert [text for _, text in made.marks] == ["self_supervised", "contrastive_rl"]
    assert made.has_bands


def test_the_pointer_reads_the_same_figures_as_the_report(reports: list[Report]) -> None:
    data = json.loads(chart(reports, "Success rate").hover)
    assert data["at"] == ["self_supervised, step 0", *(f"contrastive_rl, step {step}" for step in range(6))]
    point = reports[0].steps[-1]
    success = point.estimates["success"]
    assert success.value == point.success == 0.75
    assert data["series"][0]["values"][-1] == f"75.0% ({100 * success.low:.0f}-{100 * success.high:.0f}%)"
    assert [len(series["values"]) for series in data["series"]] == [len(data["x"])] * 2


def test_lines_stay_within_the_plot_and_so_do_their_bands(reports: list[Report]) -> None:
    for made in [*curves(reports), busy_curve(reports[0], reports[0].busy)]:
        assert made is not None
        for line in made.lines:
            for path in (*line.paths, *line.bands):
                numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*", path.replace("h0", ""))]
                assert all(0 <= number <= 100 for number in numbers), path
        assert made.y_ticks
        assert all(0 <= place <= 100 for place, _ in made.y_ticks)


def test_a_single_wide_interval_does_not_flatten_the_curve(reports: list[Report]) -> None:
    made = chart(reports, "Mean speed-up")
    heights = [float(number) for path in made.lines[1].paths for number in re.findall(r" (\d+\.?\d*)", path)]
    assert max(heights) - min(heights) > 40


def test_a_text_cannot_end_its_script_element() -> None:
    data = {"at": ["</script><script>alert(1)</script>", "&", "é"]}
    text = safe_json(data)
    assert "<" not in text
    assert json.loads(text) == data


def test_strips_hold_every_right_sample(reports: list[Report]) -> None:
    made = strips_of(reports[0].groups[0])
    assert made is not None
    assert [len(strip.dots) for strip in made.strips] == [len(stage.speedups) for stage in reports[0].stages]
    assert "1x" in [text for _, text in made.ticks]
    places = [place for place, _ in made.ticks]
    assert places == sorted(places)


def test_a_heat_map_is_coloured_by_the_speed_of_all_samples(reports: list[Report]) -> None:
    group = reports[0].groups[0]
    made = heat_map([(stage.label, "") for stage in group.stages], [stage.tasks for stage in group.stages])
    rows = dict(made.rows)
    softmax, gelu = rows["level1/softmax"], rows["level1/gelu_tanh"]
    assert softmax[0] is not None
    assert softmax[2] is not None
    assert gelu[0] is not None
    assert softmax[0].tint is not None
    assert softmax[2].tint is not None
    assert softmax[0].tint < 0 < softmax[2].tint
    assert (gelu[0].tint, gelu[0].value, gelu[0].below) == (None, "-", "0/2")
    assert softmax[2].value == "5.79x"
    assert "over torch_compile: mean 4.64x, best 4.88x" in softmax[2].words


def test_speeds_are_over_every_baseline_and_name_tasks_without(reports: list[Report]) -> None:
    made = task_speeds(reports[0].stages[0].tasks, ["eager", "torch_compile"])
    assert made.without == ("level1/gelu_tanh",)
    assert made.rows[1] == ("level1/softmax", "1/2", (("0.90x", "0.90x"), ("0.72x", "0.72x")))


def test_what_the_guard_stopped_and_what_the_run_cost(reports: list[Report]) -> None:
    (caught,) = reports[0].catches.shown
    assert (caught.task_id, caught.phase, caught.step, caught.claimed) == (
        "level1/softmax",
        "1-contrastive_rl",
        4,
        80.0,
    )
    assert "class ModelNew" in caught.source
    effort = {each.label: each for each in reports[0].effort}
    assert list(effort) == ["self_supervised", "contrastive_rl", "assessments", "in all"]
    training = effort["contrastive_rl"]
    assert (training.steps, training.seconds, training.rollouts, training.tokens) == (6, 540.0, 48, 30_000)
    assert training.busy == (0.5, 0.25, 0.75, pytest.approx(0.1 * 10 / 6))
    assert (training.judging, effort["in all"].judging) == (48 * 9.5, 78 * 9.5)
    assert effort["assessments"].rollouts == 24, "held-out ones, too"
    assert effort["assessments"].busy == (None,) * 4
    assert effort["in all"].seconds == 90.0 + 540.0 + 180.0


def test_a_terminal_shows_curves_on_one_scale(reports: list[Report]) -> None:
    made = {(each.figure, each.run): each for each in sparks_of(reports, 40)}
    slow, fast = made["mean speed-up", "first"], made["mean speed-up", "second"]
    assert [len(each.blocks) for each in (slow, fast)] == [7, 7]
    assert (slow.blocks[0], fast.blocks[-1]) == ("▁", "█")
    assert slow.blocks[-1] < fast.blocks[-1], "the second run is faster"
    assert (slow.first, slow.last) == ("1.03x", "2.79x")
    assert len(sparks_of(reports, 3)[0].blocks) == 3


def test_a_run_with_one_step_or_none_has_plots_or_none(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "young")
    run.write_config(RunConfig(name="young"))
    assert curves([build_report(run)]) == []
    write_step(run, "1-contrastive_rl", 0, {"t1": [1.0, 1.0]})
    assert chart([build_report(run)], "Mean speed-up").y_ticks
