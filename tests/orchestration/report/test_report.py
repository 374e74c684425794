"""A report says what the run directory holds: figures with honest intervals, dashes for what does not exist."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy.stats import binomtest

from configs.schema import RunConfig, ScheduleConfig, TasksConfig
from evaluators.audit.marks import Mark
from evaluators.audit.records import FindingKind
from evaluators.records import Candidate, Correctness, Estimate, Finding, Outcome, Timing, Verdict
from learners.records import Rollout
from orchestration.report import build_report, print_report, render_html, render_text
from orchestration.report import format as fmt
from orchestration.report.statistics import (
    AssessmentRow,
    compare,
    compare_seeds,
    overall,
    overall_gain,
    per_task,
    summarise,
    wilson,
)
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import RunDirectoryError
from orchestration.run.state import RunState


def row(task: str, speed: float | None, best: float | None = None) -> AssessmentRow:
    if speed is None:
        return AssessmentRow(task, "wrong")
    return AssessmentRow(task, "ok", {"eager": speed, "torch_compile": speed if best is None else best})


# Statistics


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
@settings(deadline=None, max_examples=60)
def test_wilson_agrees_with_scipy(counts):
    successes, samples = counts
    estimate = wilson(successes, samples)
    expected = binomtest(successes, samples).proportion_ci(0.95, method="wilson")
    assert (estimate.low, estimate.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert estimate.low <= estimate.value <= estimate.high


def synthetic(seed: int, samples: int = 4, gain: float = 1.0) -> list[AssessmentRow]:
    """12 tasks that differ in difficulty and in speed, as real ones do."""
    generator = np.random.default_rng(seed)
    rows = []
    for index, (mean, chance) in enumerate(zip(TASK_MEANS, TASK_CHANCES, strict=True)):
        for _ in range(samples):
            speed = float(mean * gain * np.exp(generator.normal(-0.045, 0.3)))
            rows.append(row(f"t{index}", speed if generator.random() < chance else None))
    return rows


TASK_MEANS, TASK_CHANCES = np.linspace(1, 2, 12), np.linspace(0.4, 0.95, 12)
TRUE_MEAN = float((TASK_MEANS * TASK_CHANCES).sum() / TASK_CHANCES.sum())


def test_the_interval_of_the_mean_covers_the_truth_in_about_95_percent_of_runs():
    covered = 0
    for seed in range(120):
        mean = summarise(synthetic(seed), "x").over_eager.mean
        covered += mean.low <= TRUE_MEAN <= mean.high
    assert 0.88 <= covered / 120 <= 0.992, "outside what 120 runs at 93 to 96 % allow"


def test_the_interval_of_a_difference_covers_no_difference_and_finds_a_real_one():
    covered, found = 0, 0
    for seed in range(60):
        covered += holds_zero(compare(synthetic(seed), synthetic(seed + 1000)).mean_over_eager)
        found += compare(synthetic(seed), synthetic(seed + 1000, gain=1.4)).mean_over_eager.low > 0
    assert covered >= 51
    assert found >= 54


def test_the_interval_of_the_gain_of_all_samples_covers_no_gain_and_finds_a_real_one():
    covered, found = 0, 0
    for seed in range(60):
        same = overall_gain(synthetic(seed), synthetic(seed + 1000))
        covered += same.low <= 1.0 <= same.high
        found += overall_gain(synthetic(seed), synthetic(seed + 1000, gain=1.4)).low > 1.0
    assert covered >= 51
    assert found >= 54


def test_a_sample_that_is_not_correct_counts_as_the_reference_in_what_all_are():
    rows = [row("a", 4.0), row("a", None), row("b", 0.25), row("b", 16.0)]
    assert overall(rows).value == pytest.approx(2.0)
    assert overall(rows).low < 2.0 < overall(rows).high
    slow_ones_fail = [row("a", 4.0), row("a", None), row("b", None), row("b", 16.0)]
    assert overall_gain(rows, slow_ones_fail).value == pytest.approx(2**0.5)  # the reference, four times as fast
    assert overall_gain(rows, [row("a", None), row("a", None)]).value == pytest.approx(0.5)
    assert overall([]) is None
    assert overall_gain([], rows) is None


def holds_zero(estimate: Estimate) -> bool:
    return estimate.low <= 0 <= estimate.high


def test_figures_are_those_of_the_correct_samples():
    rows = [row("a", 1.0, 0.8), row("a", 4.0, 2.0), row("b", 2.0, 1.005), row("b", None), row("c", None)]
    summary = summarise(rows, "sft")
    assert (summary.tasks, summary.samples, summary.correct, summary.success.value) == (3, 5, 2, 0.6)
    speeds = summary.over_eager
    assert speeds.mean.value == pytest.approx(7 / 3)
    assert (speeds.median.value, speeds.geometric_mean.value, speeds.mean.n) == (2.0, pytest.approx(2.0), 3)
    assert summary.over_best.mean.value == pytest.approx((0.8 + 2.0 + 1.005) / 3)
    assert summary.improved.value == 0.2, "only 2.0x is more than 1.01x over the best baseline; of all samples"
    assert summary.faster.value == 0.4, "4.0x and 2.0x are more than 1.01x over eager"
    assert summary.copies is None, "nobody looked"


def test_copies_are_a_share_of_all_samples_and_only_right_ones_count():
    looked = [replace(row("a", 1.0), copy_of="reference"), replace(row("a", 1.2), copy_of="exemplar"), row("b", None)]
    assert summarise([*looked, replace(row("b", None), copy_of="reference")], "sft").copies.value == 0.25
    assert summarise([*looked, row("b", 1.0)], "sft").copies is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.floats(0.01, 100))), min_size=0, max_size=12))
@settings(deadline=None, max_examples=40)
def test_no_figure_is_ever_nan_and_every_interval_holds_its_value(pairs):
    rows = [row(task, speed) for task, speed in pairs]
    summary = summarise(rows, "x")
    speeds = [getattr(side, name) for side in (summary.over_eager, summary.over_best) for name in SPEED_NAMES]
    for estimate in [summary.success, summary.improved, summary.faster, *speeds]:
        if estimate is not None:
            assert all(math.isfinite(value) for value in (estimate.value, estimate.low, estimate.high))
            assert estimate.low <= estimate.value <= estimate.high
    assert (speeds[0] is None) == all(speed is None for _, speed in pairs)
    assert (summary.success is None) == (not pairs)


SPEED_NAMES = ("mean", "median", "geometric_mean")


def test_a_stage_of_failures_has_a_success_rate_and_no_speed_ups():
    summary = summarise([row("a", None)] * 4, "base")
    assert summary.success.value == 0
    assert summary.over_eager.mean is None
    assert summary.over_best.median is None
    comparison = compare([row("a", None)] * 4, [row("a", 2.0)] * 4)
    assert comparison.success.low > 0
    assert comparison.mean_over_eager is None


def test_the_bootstrap_never_mixes_tasks():
    rows = [row("slow", 1.0)] * 4 + [row("fast", 9.0)] * 4
    mean = summarise(rows, "x").over_eager.mean
    assert (mean.low, mean.value, mean.high) == pytest.approx((5.0, 5.0, 5.0)), (
        "samples vary within a task, and here none does"
    )


def test_tasks_of_one_sample_still_give_an_interval():
    mean = summarise([row(f"t{index}", 1.0 + index) for index in range(8)], "x").over_eager.mean
    assert mean.low < mean.value < mean.high


def test_the_same_rows_give_the_same_report():
    assert summarise(synthetic(1), "x") == summarise(synthetic(1), "x")


def test_per_task_figures():
    first, second = per_task([row("b", None), row("a", 1.0), row("a", 3.0)])
    assert (first.task_id, first.correct, first.samples, first.mean, first.best) == ("a", 2, 2, 2.0, 3.0)
    assert (second.task_id, second.correct, second.mean, second.best) == ("b", 0, None, None)


def test_seeds_are_pooled_as_pairs_and_shown_one_by_one():
    before = [synthetic(seed, gain=1 + seed / 2) for seed in range(3)]
    after = [synthetic(seed + 10, samples=8, gain=1.5 + seed / 2) for seed in range(3)]
    pooled = compare_seeds(before, after)
    each = [compare(a, b) for a, b in zip(before, after, strict=True)]
    gain = pooled.difference.mean_over_eager
    mean_gain = sum(comparison.mean_over_eager.value for comparison in each) / 3
    assert gain.value == pytest.approx(mean_gain)
    assert gain.low > 0, "paired: the seeds differ more from each other than they gain"
    assert [one.mean_over_eager.value for one in pooled.per_seed] == [one.mean_over_eager.value for one in each]
    level = pooled.second.mean_over_eager
    assert level.value - pooled.first.mean_over_eager.value == pytest.approx(gain.value)
    assert level.high - level.low > gain.high - gain.low, "a level varies with the seeds"
    with pytest.raises(ValueError, match="same seeds"):
        compare_seeds(before, after[:2])


# The report of a run


def write_step(
    run: RunDirectory,
    phase: str,
    step: int,
    speeds: dict[str, list[float | None]],
    guard: dict[float, tuple[Finding, ...]] | None = None,
) -> None:
    rollouts, verdicts = [], []
    for task, values in speeds.items():
        for index, speed in enumerate(values):
            candidate = Candidate.propose(task, f"class ModelNew:\n    '<b>&'\n    n = {speed}, {index}", "policy:1")
            estimate = Estimate(speed or 1.0, (speed or 1.0) * 0.95, (speed or 1.0) * 1.05, 30)
            verdict = Verdict(
                candidate.digest,
                task,
                "cpu",
                Outcome.WRONG if speed is None else Outcome.OK,
                correctness=Correctness(8, 1e-7, 1e-4),
                speedups={} if speed is None else {"eager": estimate},
                timing=Timing(Estimate(1e-3, 9e-4, 1.1e-3, 30), Estimate(2e-3, 1e-3, 3e-3, 30), 30, "interval", 0.0),
                evaluator={"preset": "fast", "machine": "two cores"},
                guard=(guard or {}).get(speed or 0.0, ()),
            )
            verdicts.append(verdict)
            run.kernels.save(task, "cpu", candidate, verdict)
            rollout = Rollout(task, task, "p", "r", (1,), (2,), (-1.0,), 1, candidate_digest=candidate.digest)
            rollouts.append(rollout)
        rollouts.append(Rollout(task, task, "p", "r", (1,), (2,), (-1.0,), 1, outcome="build_error", reward=0.0))
    run.samples.write(phase, step, rollouts)
    run.verdicts.write(phase, step, verdicts)


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    run = RunDirectory(tmp_path, "demo")
    run.write_config(RunConfig(name="demo", root=str(tmp_path)))
    write_step(run, "assess/base", 0, {"t1": [None, None], "t2": [None, None]})
    write_step(run, "assess/1-sft", 0, {"t1": [1.2, None], "t2": [None, None]})
    for step in (1, 2, 3):
        write_step(run, "1-self_supervised", step, {"t1": [1.1, None], "t2": [1.2, 0.9]})
        write_step(run, "1-contrastive_rl", step, {"t1": [1.5, 1.4], "t2": [1.2 + step, 0.9]})
        run.metrics.write("1-contrastive_rl", step, {"loss/kl": 0.01 * step, "loss": 1.0})
        run.metrics.write("1-sft", step, {"loss": 1.0})
    write_step(run, "assess/1-contrastive_rl", 0, {"t1": [1.5, 1.6], "t2": [2.0, None]})
    run.commit(RunState(phase="contrastive_rl", step=3, finished=True))
    return run


def test_a_report_holds_a_stage_an_assessment_in_the_order_of_the_run(run):
    report = build_report(run)
    assert [stage.label for stage in report.stages] == ["base", "sft", "contrastive_rl"]
    assert [stage.summary.success.value for stage in report.stages] == [0, 1 / 6, 3 / 6]
    assert report.stages[1].outcomes == {"ok": 1, "wrong": 3, "build_error": 2}
    assert report.stages[2].summary.over_eager.mean.value == pytest.approx((1.5 + 1.6 + 2.0) / 3)
    assert [label for _, label in report.phases] == ["sft", "self_supervised", "contrastive_rl"]
    last = report.steps[-1]
    assert (last.phase, last.step, last.success, last.reward, last.kl) == ("1-contrastive_rl", 3, 4 / 6, 0.0, 0.03)
    assert [point.kl for point in report.steps[:3]] == [None] * 3


def test_what_the_guard_found_is_counted_by_phase_stage_and_step(run):
    plain = render_html(build_report(run))
    assert "What the guard found" not in plain
    found = (Finding("clocks", "suspect", "late"), Finding("checker", "hack", "known"), Finding("text", "hint", "odd"))
    write_step(run, "1-contrastive_rl", 4, {"t1": [9.5, 1.4]}, {9.5: found})
    write_step(run, "assess/1-contrastive_rl", 0, {"t1": [9.25, 9.75]}, {9.25: found[:1], 9.75: found})
    report = build_report(run)
    assert report.found["1-contrastive_rl"] == {"clocks": 1, "checker": 1}
    assert report.found["1-self_supervised"] == {}
    assert report.stages[-1].found == {"clocks": 2, "checker": 1}
    assert report.steps[-1].doubted == pytest.approx(1 / 3)
    assert report.steps[0].doubted == 0.0
    page = render_html(report)
    assert "What the guard found" in page
    assert "Rollouts that the guard found fault with" in page
    assert "Rollouts that the guard found fault with" not in plain
    assert "The guard found fault with rollouts of training: clocks 1, checker 1." in render_text(report)


MARK = Mark("d", "t1", (FindingKind.CONSTANT, FindingKind.TINY), "it is <always> one")


def test_a_marked_task_that_was_kept_is_in_no_figure_but_its_own(run):
    run.write_config(RunConfig(name="demo", tasks=TasksConfig(marked="keep")))
    before = build_report(run)
    run.write_marks({"t1": MARK})
    report = build_report(run)
    last, was = report.stages[-1], before.stages[-1]
    assert was.summary.over_eager.median.value == 1.6
    assert (last.summary.over_eager.median.value, last.summary.tasks) == (2.0, 1)
    assert [task.task_id for task in last.tasks] == ["t2"]
    assert [(task.task_id, task.best) for task in last.marked] == [("t1", 1.6)]
    assert last.speedups == (2.0,)
    assert report.steps[-1].mean_speedup == pytest.approx((4.2 + 0.9) / 2)
    page, text = render_html(report), render_text(report)
    for shown in (page, text):
        assert "Tasks that cannot tell" in shown
        assert "constant tiny: it is" in shown
        assert "1.60x" in shown
    assert "it is &lt;always&gt; one" in page
    assert page.index('<span class="name">t2') < page.index('<span class="name">t1')
    assert max(map(len, text.splitlines())) <= 120


def test_a_marked_task_that_was_left_out_is_named(run):
    assert "cannot tell" not in render_html(build_report(run)) + render_text(build_report(run))
    run.write_marks({"t9": MARK})
    report = build_report(run)
    assert "cheat (left out):" in render_text(report)
    assert "t9  constant tiny: it is <always> one" in render_text(report)
    assert "left out of the run" in render_html(report)
    assert report.stages[-1].summary.tasks == 2


def test_stages_of_several_cycles_carry_their_cycle(run):
    run.write_config(RunConfig(name="demo", schedule=ScheduleConfig(cycles=2)))
    write_step(run, "assess/2-sft", 0, {"t1": [1.2]})
    labels = [stage.label for stage in build_report(run).stages]
    assert labels == ["base", "sft (1)", "contrastive_rl (1)", "sft (2)"]


def test_a_program_that_was_evaluated_in_another_phase_counts_with_that_verdict(run):
    again = run.samples.read("assess/1-contrastive_rl").to_pylist()[0]
    rollout = Rollout("t1", "t1", "p", "r", (1,), (2,), (-1.0,), 2, candidate_digest=again["candidate_digest"])
    lost = Rollout("t1", "t1", "p", "r", (1,), (2,), (-1.0,), 2, candidate_digest="gone")
    run.samples.write("assess/1-self_supervised", 0, [rollout, lost])
    stage = next(stage for stage in build_report(run).stages if stage.label == "self_supervised")
    assert stage.outcomes == {"ok": 1, "infra": 1}
    assert stage.summary.over_eager.mean.value == 1.5


def test_the_terminal_report_fits_120_columns_and_needs_no_colour(run):
    text = render_text(build_report(run))
    assert max(map(len, text.splitlines())) <= 120
    assert "\x1b" not in text
    assert "…" not in text
    assert "nan" not in text.lower()
    for expected in ("base", "sft", "contrastive_rl", "16.7%", "1.70x", "3-56%", "preset fast"):
        assert expected in text


def test_large_figures_are_not_cut_off(run):
    write_step(run, "assess/1-self_supervised", 0, {"t1": [14.321, 56.123, 99.9], "t2": [123.4, 88.8]})
    assert "…" not in render_text(build_report(run))


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
    text = render_text(build_report(run))
    assert max(map(len, text.splitlines())) <= 120
    assert "5 more stages in the HTML report" in text
    assert "contrastive_rl (4)" in text


class Page(HTMLParser):
    """Collects what a page would load, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        names = ("src", "href", "xlink:href", "action")
        self.loads += [value for name, value in attributes if name in names and not value.startswith("#")]

    def handle_data(self, data):
        self.text += data


def test_the_page_is_self_contained_and_shows_everything(run):
    html = render_html(build_report(run))
    page = Page(html)
    assert page.loads == []
    assert "script" not in page.tags
    assert "url(http" not in html
    assert "@import" not in html
    assert page.tags.count("svg") == 3
    assert "n = 4.2, 0" in page.text, "the best program's source"
    for expected in ("two cores", "self_supervised", "1.70x", "1 ms", "micro_batch_tokens", "finished"):
        assert expected in page.text
    assert "prefers-color-scheme: dark" in html
    assert not re.search(r"\bnan\b", page.text, re.IGNORECASE)


def test_source_text_of_a_model_is_shown_and_never_becomes_markup(run):
    html = render_html(build_report(run))
    assert "&lt;b&gt;&amp;" in html
    assert "<b>&" not in html


def test_a_run_without_assessments_or_steps_still_gives_a_page(tmp_path):
    run = RunDirectory(tmp_path, "young")
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        build_report(run)
    run.write_config(RunConfig(name="young"))
    report = build_report(run)
    assert "No stage has been assessed yet" in render_html(report)
    assert "No stage has been assessed yet" in render_text(report)
    assert report.status == "not started"


def test_missing_figures_are_dashes():
    assert [fmt.speed(None), fmt.share(None), fmt.speed_interval(None), fmt.share_interval(None)] == ["-", "-", "", ""]
    assert [fmt.seconds(value) for value in (2.5, 1.234e-3, 5e-6, 3e-9)] == ["2.5 s", "1.23 ms", "5 µs", "3 ns"]
