"""A report says what the run directory holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from configs.schema import RunConfig, ScheduleConfig, TasksConfig
from evaluators.audit.marks import Mark
from evaluators.audit.records import FindingKind
from evaluators.records import Finding, KernelUse, Trace, Verdict
from learners.records import Rollout
from orchestration.report import build_report, render_html
from orchestration.report.observed import Reading, Variety
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import RunDirectoryError
from orchestration.step.constants import NEAREST_LESSONS
from tests.orchestration.report.samples import terminal_text, write_step


def test_a_report_has_a_stage_per_assessment_in_the_order_of_the_run(run):
    report = build_report(run)
    assert [stage.label for stage in report.stages] == ["base", "sft", "contrastive_rl"]
    assert [stage.summary.success.value for stage in report.stages] == [0, 1 / 6, 3 / 6]
    assert report.stages[1].outcomes == {"ok": 1, "wrong": 3, "build_error": 2}
    assert report.stages[2].summary.over_eager.mean.value == pytest.approx((1.5 + 1.6 + 2.0) / 3)
    assert [label for _, label in report.phases] == ["sft", "self_supervised", "contrastive_rl"]
    last = report.steps[-1]
    assert (last.phase, last.step, last.success, last.reward, last.kl) == ("1-contrastive_rl", 3, 4 / 6, 0.0, 0.03)
    assert [point.kl for point in report.steps[:3]] == [None] * 3


def test_findings_of_the_guard_are_counted_by_phase_stage_and_step(run):
    plain = render_html(build_report(run))
    assert "What the guard found" not in plain
    clocks, checker = Finding("clocks", "suspect", "late"), Finding("checker", "hack", "known")
    findings = (clocks, checker, Finding("text", "hint", "odd"))
    write_step(run, "1-contrastive_rl", 4, {"t1": [9.5, 1.4]}, {9.5: findings})
    write_step(run, "assess/1-contrastive_rl", 0, {"t1": [9.25, 9.75]}, {9.25: (clocks,), 9.75: findings})
    report = build_report(run)
    assert report.findings["1-contrastive_rl"] == {"clocks": 1, "checker": 1}
    assert report.findings["1-self_supervised"] == {}
    assert report.stages[-1].findings == {"clocks": 2, "checker": 1}
    assert report.steps[-1].doubted == pytest.approx(1 / 3)
    assert report.steps[0].doubted == 0.0
    page = render_html(report)
    assert "What the guard found" in page
    assert "Rollouts with findings of the guard" in page
    assert "Rollouts with findings of the guard" not in plain
    assert "Rollouts of training with findings of the guard: clocks 1, checker 1." in terminal_text(report)


MARK = Mark("d", "t1", (FindingKind.CONSTANT, FindingKind.TINY), "it is <always> one")


def test_a_kept_marked_task_is_in_no_figure_but_its_own(run):
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
    page, text = render_html(report), terminal_text(report)
    for shown in (page, text):
        assert "Tasks that cannot tell" in shown
        assert "constant tiny: it is" in shown
        assert "1.60x" in shown
    assert "it is &lt;always&gt; one" in page
    assert page.index('<span class="name">t2') < page.index('<span class="name">t1')
    assert max(map(len, text.splitlines())) <= 120


def test_a_marked_task_that_was_left_out_is_named(run):
    assert "cannot tell" not in render_html(build_report(run)) + terminal_text(build_report(run))
    run.write_marks({"t9": MARK})
    report = build_report(run)
    assert "cheat (left out):" in terminal_text(report)
    assert "t9  constant tiny: it is <always> one" in terminal_text(report)
    assert "left out of the run" in render_html(report)
    assert report.stages[-1].summary.tasks == 2


def test_stages_of_several_cycles_are_labelled_with_their_cycle(run):
    run.write_config(RunConfig(name="demo", schedule=ScheduleConfig(cycles=2)))
    write_step(run, "assess/2-sft", 0, {"t1": [1.2]})
    labels = [stage.label for stage in build_report(run).stages]
    assert labels == ["base", "sft (1)", "contrastive_rl (1)", "sft (2)"]


def test_a_program_that_another_phase_evaluated_has_the_verdict_of_that_phase(run):
    again = run.samples.read("assess/1-contrastive_rl").to_pylist()[0]
    rollout = Rollout("t1", "t1", "p", "r", (1,), (2,), (-1.0,), 2, candidate_digest=again["candidate_digest"])
    lost = Rollout("t1", "t1", "p", "r", (1,), (2,), (-1.0,), 2, candidate_digest="gone")
    run.samples.write("assess/1-self_supervised", 0, [rollout, lost])
    stage = next(stage for stage in build_report(run).stages if stage.label == "self_supervised")
    assert stage.outcomes == {"ok": 1, "infra": 1}
    assert stage.summary.over_eager.mean.value == 1.5


def test_a_run_without_assessments_or_steps_still_gives_a_page(tmp_path):
    run = RunDirectory(tmp_path, "young")
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        build_report(run)
    run.write_config(RunConfig(name="young"))
    report = build_report(run)
    assert "No stage has been assessed yet" in render_html(report)
    assert "No stage has been assessed yet" in terminal_text(report)
    assert report.status == "not started"


def test_programs_are_lessons_from_the_phase_on_that_taught_them(run):
    """The programs of `write_step` differ by speed-up and position: the samples of a step repeat those of another."""
    config = RunConfig(name="demo")
    config.sft.min_speedup = 1.3
    run.write_config(config)
    write_step(run, "1-sft", 0, {"t1": [1.5, 1.2, None]})
    write_step(run, "assess/base", 0, {"t1": [1.5]})
    write_step(run, "assess/1-sft", 0, {"t1": [1.5, 1.2, None], "t2": [1.5]})
    stages = {stage.label: stage.summary for stage in build_report(run).stages}
    assert stages["base"].lessons.value == 0.0, "it was not taught yet"
    assert stages["sft"].lessons.value == pytest.approx(1 / 6), "too slow a program is no lesson, nor another task's"
    assert stages["sft"].lessons_of_correct == pytest.approx(1 / 3)
    assert stages["contrastive_rl"].lessons.value == pytest.approx(1 / 6), "1.5x of t1, as in SFT"
    assert "lessons" in terminal_text(build_report(run))


def test_what_contrastive_rl_might_rehearse_counts_as_taught_after_it(run):
    config = RunConfig(name="demo")
    config.contrastive_rl.rehearsal, config.reward.resolution = 1, 0.05
    run.write_config(config)
    write_step(run, "assess/1-contrastive_rl", 0, {"t1": [1.5, 1.4], "t2": [2.2, None]})
    last = build_report(run).stages[-1].summary
    # Of t1 the best rollout of the phase is 1.5x; of t2 they were 2.2x, then 3.2x, then 4.2x.
    assert last.lessons.value == pytest.approx(2 / 6)
    before = next(stage for stage in build_report(run).stages if stage.label == "sft").summary
    assert before.lessons.value == 0.0


def test_own_kernels_are_read_from_the_traces_of_verdicts(run):
    verdicts = [Verdict.from_row(row) for row in run.verdicts.read("assess/1-contrastive_rl").to_pylist()]
    kernel = KernelUse("mine", True, 7, 1, 1e-6)
    traces = [Trace((kernel,), 1e-6, share, 1) for share in (0.4, 0.0, 0.0, 0.0)]
    run.verdicts.write(
        "assess/1-contrastive_rl",
        0,
        [replace(verdict, trace=trace) for verdict, trace in zip(verdicts, traces, strict=True)],
    )
    assert build_report(run).stages[-1].summary.own_kernel.value == pytest.approx(1 / 3)
    assert build_report(run).stages[1].summary.own_kernel is None
    assert "33.3%" in terminal_text(build_report(run)).split("What is faster")[1].split("How fast")[0]


def test_the_nearest_lesson_stands_beside_the_stages_once_it_was_judged(run):
    assert [stage.label for stage in build_report(run).groups[0].constants] == ["reference"]
    write_step(run, NEAREST_LESSONS, 0, {"t1": [1.7], "t2": [None], "t7": [9.0]})
    group = build_report(run).groups[0]
    assert [stage.label for stage in group.constants] == ["reference", "nearest lesson"]
    assert {row.task_id for row in group.constants[1].rows} == {"t1", "t2"}, "of the tasks that stages have"
    assert group.constants[1].summary.over_eager.mean.value == 1.7
    assert [stage.label for stage in group.stages] == ["base", "sft", "contrastive_rl"]
    assert not any(phase.startswith("constant") for phase, _ in build_report(run).phases)
    for shown in (terminal_text(build_report(run)), render_html(build_report(run))):
        assert "nearest lesson" in shown


def test_what_a_run_observed_of_its_samples_is_shown(run):
    plain = build_report(run)
    assert "Variety" not in terminal_text(plain)
    assert "contrastive prompts" not in terminal_text(plain)
    run.metrics.write("assess/1-sft", 0, {"token_entropy": 0.05, "distinct_bigrams": 0.3, "distinct_programs": 0.25})
    answers = {"contrastive/names_exemplar": 0.5, "contrastive/names_speed": 0.0, "contrastive/lesson_text": 0.75}
    run.metrics.write("1-contrastive_rl", 1, {"contrastive/answers": 6.0, **answers})
    run.metrics.write("1-contrastive_rl", 2, {"contrastive/answers": 2.0, "contrastive/names_exemplar": 0.0})
    run.write_marks({"t9": MARK})
    report = build_report(run)
    assert [stage.variety for stage in report.stages] == [None, Variety(0.25, 0.3, 0.05), None]
    assert report.readings == {"1-contrastive_rl": Reading(8, 0.375, 0.0, 0.75)}
    for shown in (terminal_text(report), render_html(report)):
        assert "Variety of the samples" in shown
        assert "Answers to contrastive prompts" in shown
        assert "37.5%" in shown
    run.write_config(RunConfig(name="demo", tasks=TasksConfig(marked="keep")))
    assert build_report(run).stages[1].variety is None, "metrics are of marked tasks, too"


def test_prompts_without_speed_ups_have_no_share_of_answers_that_name_one(run):
    run.metrics.write("1-contrastive_rl", 1, {"contrastive/answers": 6.0, "contrastive/names_exemplar": 0.5})
    report = build_report(run)
    assert report.readings == {"1-contrastive_rl": Reading(6, 0.5, None, None)}
    assert "Answers to contrastive prompts" in terminal_text(report)
