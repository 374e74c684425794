"""The report of a published run, made again from its rows, has the figures of the published page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.published_report import with_stages
from orchestration.report.assemble import build_report
from orchestration.report.comparison import overall_gain
from orchestration.report.published import published_baselines, restore

PUBLISHED = Path(__file__).parents[2] / "docs" / "results" / "rehearsed"
RUNS = sorted(folder for folder in PUBLISHED.parent.iterdir() if folder.is_dir())


def test_a_restored_report_has_the_stages_of_the_published_page(tmp_path: Path) -> None:
    report = build_report(restore(PUBLISHED, tmp_path))
    page = (PUBLISHED / "README.md").read_text(encoding="utf-8")
    stages = [stage.summary for group in report.groups for stage in group.stages]
    assert len(stages) == 8
    for stage in stages:
        assert stage.success is not None
        assert f"| {stage.stage} | {stage.tasks} | {stage.samples} | {stage.success.value:.1%} " in page
    assert report.status == "finished"
    known = build_report(restore(PUBLISHED, tmp_path / "other"), published_baselines(RUNS))
    intervals = re.compile(r" \([^)]*\)")  # they are drawn by NumPy, whose versions may differ
    assert intervals.sub("", with_stages(page, known)) == intervals.sub("", page), "as this version makes it"
    with pytest.raises(ValueError, match="not a published page"):
        with_stages("# Another\n", known)


def test_what_the_published_run_showed_is_read_from_its_rows(tmp_path: Path) -> None:
    """Figures that the project's pages speak of."""
    report = build_report(restore(PUBLISHED, tmp_path), published_baselines(RUNS))
    rows = [row for group in report.groups for row in group.stages[1].rows]
    right = [row for row in rows if row.is_correct]
    assert (report.stages[1].label, len(right), sum(row.is_lesson for row in right)) == ("sft", 99, 83)
    compiled = [group.constants[1].summary.over_eager.geometric_mean for group in report.groups]
    assert [round(estimate.value, 2) for estimate in compiled if estimate] == [1.76, 2.56]
    gain = overall_gain(report.stages[2].rows, report.stages[3].rows)
    assert gain is not None
    assert (gain.value, gain.low, gain.high) == pytest.approx((1.064, 0.93, 1.235), abs=0.015)
