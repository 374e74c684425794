"""The report of a published run, made again from its rows, has the figures of the published page."""

from __future__ import annotations

from pathlib import Path

from benchmarks.published_report import restore
from orchestration.report.assemble import build_report

PUBLISHED = Path(__file__).parents[2] / "docs" / "results" / "rehearsed"


def test_a_restored_report_has_the_stages_of_the_published_page(tmp_path: Path) -> None:
    report = build_report(restore(PUBLISHED, tmp_path))
    page = (PUBLISHED / "README.md").read_text(encoding="utf-8")
    stages = [stage.summary for group in report.groups for stage in group.stages]
    assert len(stages) == 8
    for stage in stages:
        assert stage.success is not None
        assert f"| {stage.stage} | {stage.tasks} | {stage.samples} | {stage.success.value:.1%} " in page
    assert report.status == "finished"
