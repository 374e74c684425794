"""A report in the terminal fits the width, cuts nothing off and needs no colour."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from configs.schema import RunConfig, ScheduleConfig
from orchestration.report import build_report, print_report, render_html
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState
from tests.orchestration.report.samples import terminal_text, write_step


def test_the_terminal_report_fits_120_columns_and_needs_no_colour(run):
    text = terminal_text(build_report(run))
    assert max(map(len, text.splitlines())) <= 120
    assert "\x1b" not in text
    assert "…" not in text
    assert "nan" not in text.lower()
    for expected in ("base", "sft", "contrastive_rl", "16.7%", "1.70x", "0-98%", "preset fast"):
        assert expected in text


def test_large_figures_are_not_cut_off(run):
    write_step(run, "assess/1-self_supervised", 0, {"t1": [14.321, 56.123, 99.9], "t2": [123.4, 88.8]})
    assert "…" not in terminal_text(build_report(run))


def test_what_endpoints_of_teachers_gave_is_summed_over_all_phases(run):
    assert build_report(run).tutoring is None
    counts = {"answers": 700.0, "lost": 1.0, "prompt_tokens": 90_000.0, "completion_tokens": 30_000.0}
    figures = {f"teacher/{name}": value for name, value in counts.items()}
    for cycle in (1, 2):
        run.metrics.write(f"{cycle}-sft", 0, figures)
    expected = "gave 1,400 answers, 2 lost, with 180,000 tokens of prompts and 60,000 of answers"
    assert f"{expected}." in " ".join(terminal_text(build_report(run)).split())
    run.metrics.write("2-sft", 0, {**figures, "teacher/cost": 12.5})
    report = build_report(run)
    assert f"{expected}; they cost 12.50." in " ".join(terminal_text(report).split())
    assert f"{expected}; they cost 12.50." in render_html(report)


def test_a_run_that_only_collects_shows_what_each_teacher_gave(tmp_path):
    run = RunDirectory(tmp_path, "demo")
    run.write_config(RunConfig(name="demo", schedule=ScheduleConfig(phases=["collect"])))
    run.metrics.write("1-collect", 0, {"examples": 34.0})
    run.write_state(RunState(phase="collect", step=1))
    assert "No stage has been assessed yet." in terminal_text(build_report(run))
    given = {"tasks": 24, "solved": 17, "tries": 1480, "right": 51, "faster": 40, "lost": 3}
    large = {"name": "large", **given, "prompt_tokens": 1_234_567, "completion_tokens": 98_765, "cost": 5.25}
    bundled = {"name": "bundled", **given, "lost": 0, "prompt_tokens": 0, "completion_tokens": 0, "cost": None}
    run.write_state(RunState(phase="collect", step=1, extra={"1-collect": {"teachers": [large, bundled]}}))
    report = build_report(run)
    text, words = terminal_text(report), " ".join(terminal_text(report).split())
    assert "large 24 17 1,480 51 40 3 1,234,567 98,765 5.25" in words
    assert "bundled 24 17 1,480 51 40 0 - - -" in words
    assert "No stage" not in text
    assert max(map(len, text.splitlines())) <= 120
    page = render_html(report)
    assert "Teachers" in page
    assert "1,234,567" in page
    assert "No stage" not in page


@pytest.mark.parametrize("width", [80, 200])
def test_the_report_fits_narrow_and_wide_terminals(run, width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    print_report(build_report(run), console)
    text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    assert "geo-mean" in text
    assert "improved" in text
    tables = [line for line in text.splitlines() if str(run) not in line]
    assert max(map(len, tables)) <= width


def test_many_cycles_show_the_first_and_the_last_stages(run):
    run.write_config(RunConfig(name="demo", schedule=ScheduleConfig(cycles=4)))
    for cycle in (2, 3, 4):
        for phase in ("sft", "contrastive_rl"):
            write_step(run, f"assess/{cycle}-{phase}", 0, {"t1": [1.2]})
    text = terminal_text(build_report(run))
    assert max(map(len, text.splitlines())) <= 120
    assert "5 more stages in the HTML report" in text
    assert "contrastive_rl (4)" in text
