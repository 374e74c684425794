"""Which tasks a run trains on: marked ones are left out, kept where that is asked for, and never by an old audit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from configs.load import ConfigError, dump_config, load_config
from configs.schema import RunConfig
from evaluators.audit import marks
from evaluators.audit.records import AuditFinding, FindingKind, TaskAudit
from evaluators.audit.run import write_audits
from evaluators.tasks import TaskError, find_task, load_tasks
from orchestration.commands.main import app
from orchestration.report.progress import Progress
from orchestration.run.directory import RunDirectory
from orchestration.session import Session

PROGRAM = """import torch
import torch.nn as nn

batch = 8


class Model(nn.Module):
    def forward(self, x):
        return {output}


def get_inputs():
    return [torch.randn(batch, 16)]


def get_init_inputs():
    return []
"""
OUTPUTS = ["torch.tanh(x)", "torch.softmax(x.sum(1, keepdim=True), dim=1)", "torch.sigmoid(x)"]


def write_tasks(path: Path, outputs: list[str]) -> None:
    rows = [
        {"level_id": 1, "task_id": index, "ref_code": PROGRAM.format(output=output)}
        for index, output in enumerate(outputs, start=1)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with three tasks in a file, of which the second is always one."""
    monkeypatch.chdir(tmp_path)
    write_tasks(tmp_path / "tasks.jsonl", OUTPUTS)
    return tmp_path


@pytest.fixture
def audited(folder: Path) -> Path:
    """What an audit of the tasks wrote."""
    finding = AuditFinding(FindingKind.CONSTANT, "the output is the same whatever goes in")
    tasks = load_tasks(str(folder / "tasks.jsonl"))
    write_audits(
        [TaskAudit(one.id, one.text_digest, one.name, (finding,) if one.id == "level1/2" else ()) for one in tasks],
        folder / "audits.parquet",
    )
    return folder / "audits.parquet"


@pytest.fixture
def warpsmith(folder: Path) -> Callable[..., Result]:
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def config_of(*overrides: str) -> RunConfig:
    phases = "schedule.phases=[contrastive_rl]"
    return load_config("local", ["name=marked", "tasks.source=tasks.jsonl", phases, *overrides])


def opened(*overrides: str) -> Session:
    return Session(config_of(*overrides), Progress())


def names(session: Session) -> list[str]:
    return [task.id for task in session.tasks.training]


def test_tasks_of_several_sources_are_chosen_by_id_and_pattern(folder: Path) -> None:
    chosen = ["tasks.source=bundled,tasks.jsonl", "tasks.include=['level2/linear_*',level1/3,'level1/[12]']"]
    ours = ["level2/linear_scale_residual_clamp_logsumexp_mish", "level2/linear_sum_sigmoid_gate"]
    assert names(opened(*chosen)) == ["level1/1", "level1/2", "level1/3", *ours]
    assert names(opened(*chosen, "tasks.levels=[2]")) == ours
    sizes = {task.id: task.sizes for task in opened(*chosen, "tasks.profile=cuda").tasks.training}
    assert sizes[ours[1]] == find_task(ours[1], "cuda").sizes
    assert sizes["level1/3"] == {}


@pytest.mark.parametrize("name", ["level1/4", "level9/*"])
def test_a_name_that_means_no_task_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(TaskError, match=r"tasks\.include: .* is not among the tasks of tasks\.jsonl"):
        opened(f"tasks.include=[level1/1,'{name}']")


def test_the_plan_names_what_is_held_out(folder: Path, warpsmith: Callable[..., Result]) -> None:
    done = warpsmith("run", "local", "--dry-run", "tasks.source=tasks.jsonl", "tasks.held_out.tasks=[level1/3]")
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "1 tasks are held out from training: level1/3" in said
    assert "2 tasks on cpu" in said
    assert "24 fresh samples" in said, "the assessment is of all three"


def test_a_marked_task_is_left_out_by_default(audited: Path) -> None:
    session = opened("tasks.audit=audits.parquet")
    assert names(session) == ["level1/1", "level1/3"]
    assert list(session.tasks.marks) == ["level1/2"]


def test_a_marked_task_is_kept_where_that_is_asked_for(audited: Path) -> None:
    session = opened("tasks.audit=audits.parquet", "tasks.marked=keep")
    assert names(session) == ["level1/1", "level1/2", "level1/3"]
    assert list(session.tasks.marks) == ["level1/2"], "a report must know it all the same"


def test_the_shipped_list_holds_without_being_named(audited: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(opened()) == ["level1/1", "level1/2", "level1/3"]
    rows = [mark.to_row() for mark in marks.read_marks(audited)]
    (audited.parent / "shipped.yaml").write_text(json.dumps(rows))
    monkeypatch.setattr(marks, "SHIPPED", audited.parent / "shipped.yaml")
    assert names(opened()) == ["level1/1", "level1/3"]
    assert names(opened("tasks.marked=keep")) == ["level1/1", "level1/2", "level1/3"]


def test_an_edited_task_is_not_marked_by_an_old_audit(folder: Path, audited: Path) -> None:
    write_tasks(folder / "tasks.jsonl", [OUTPUTS[0], OUTPUTS[1].replace("dim=1)", "dim=0)"), OUTPUTS[2]])
    session = opened("tasks.audit=audits.parquet")
    assert names(session) == ["level1/1", "level1/2", "level1/3"]
    assert session.tasks.marks == {}


def test_a_run_goes_on_with_the_tasks_that_it_began_with(audited: Path) -> None:
    begun = opened("tasks.audit=audits.parquet")
    run = RunDirectory("runs", "marked")
    run.write_marks(begun.tasks.marks)
    run.write_config(begun.config)
    audited.unlink()
    assert names(opened("tasks.audit=audits.parquet")) == ["level1/1", "level1/3"]
    run.write_marks({})
    assert names(opened("tasks.audit=audits.parquet")) == ["level1/1", "level1/2", "level1/3"]


def test_a_list_that_cannot_be_read_is_refused(folder: Path) -> None:
    (folder / "audits.parquet").write_text("nothing")
    with pytest.raises(TaskError, match=r"tasks\.audit: audits\.parquet: not what"):
        opened("tasks.audit=audits.parquet")


def test_a_run_without_a_task_left_names_the_knob(audited: Path, warpsmith: Callable[..., Result]) -> None:
    write_tasks(audited.parent / "tasks.jsonl", ["torch.tanh(x)", OUTPUTS[1]])
    chosen = ["run", "local", "tasks.source=tasks.jsonl", "tasks.audit=audits.parquet", "tasks.include=[level1/2]"]
    for arguments in (chosen, [*chosen, "--dry-run"]):
        done = warpsmith(*arguments)
        assert done.exit_code == 2
        (line,) = done.stderr.strip().splitlines()
        assert "tasks.marked=keep" in line
        assert "level1/2" in line
    assert not (audited.parent / "runs").exists()
    assert warpsmith(*chosen, "tasks.marked=keep", "--dry-run").exit_code == 0


def test_the_plan_says_what_becomes_of_marked_tasks(audited: Path, warpsmith: Callable[..., Result]) -> None:
    plan = ["run", "local", "--dry-run", "tasks.source=tasks.jsonl"]
    done = warpsmith(*plan, "tasks.audit=audits.parquet")
    assert done.exit_code == 0, done.output
    assert "2 tasks on cpu" in done.output
    said = " ".join(done.output.split())
    assert "are left out (tasks.marked=keep keeps them): level1/2 (constant)" in said
    kept = " ".join(warpsmith(*plan, "tasks.audit=audits.parquet", "tasks.marked=keep").output.split())
    assert "3 tasks on cpu" in kept
    assert "are kept (tasks.marked): level1/2 (constant)" in kept
    assert "cannot tell" not in warpsmith(*plan).output


def test_the_list_of_tasks_names_those_that_cannot_tell(
    audited: Path, warpsmith: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "cannot tell" not in warpsmith("tasks", "tasks.jsonl").output
    (audited.parent / "shipped.yaml").write_text(json.dumps([mark.to_row() for mark in marks.read_marks(audited)]))
    monkeypatch.setattr(marks, "SHIPPED", audited.parent / "shipped.yaml")
    lines = warpsmith("tasks", "tasks.jsonl").output.splitlines()
    assert "cannot tell" in lines[0]
    assert ["constant" in line for line in lines[1:4]] == [False, True, False]


@pytest.mark.slow
def test_a_users_own_audit_leaves_its_marks_out(folder: Path, warpsmith: Callable[..., Result]) -> None:
    done = warpsmith("audit", "tasks.jsonl", "--output", "mine.parquet")
    assert done.exit_code == 0, done.output
    assert "3 tasks: 1 marked (1 constant), 0 not audited" in done.output
    session = opened("tasks.audit=mine.parquet")
    assert names(session) == ["level1/1", "level1/3"]
    resized = replace(load_tasks("tasks.jsonl")[1], sizes={"batch": 64})
    assert list(marks.marked_among([resized], list(session.tasks.marks.values()))) == ["level1/2"]


def test_verdicts_are_taken_over_only_of_runs_that_judged_alike(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"verdicts_of: earlier holds no config\.yaml"):
        opened("evaluator.verdicts_of=[earlier]")
    (folder / "earlier").mkdir()
    (folder / "earlier" / "config.yaml").write_text(dump_config(config_of("evaluator.limits.call_seconds=5")))
    with pytest.raises(ConfigError, match="earlier holds no verdicts yet"):
        opened("evaluator.verdicts_of=[earlier]")
    (folder / "earlier" / "verdicts").mkdir()
    with pytest.raises(
        ConfigError, match=r"earlier/ was judged with evaluator\.limits\.call_seconds=5\.0, which is 10"
    ):
        opened("evaluator.verdicts_of=[earlier/]")
    opened("evaluator.verdicts_of=[earlier]", "evaluator.limits.call_seconds=5", "contrastive_rl.steps=7")


def test_verdicts_under_a_limit_that_this_version_does_not_have_are_not_taken_over(folder: Path) -> None:
    (folder / "earlier" / "verdicts").mkdir(parents=True)
    text = dump_config(config_of())
    earlier = folder / "earlier" / "config.yaml"
    earlier.write_text(text.replace("  limits:\n", "  limits:\n    call_factor: 1000.0\n"))
    opened("evaluator.verdicts_of=[earlier]")
    earlier.write_text(text.replace("  limits:\n", "  limits:\n    call_factor: 5.0\n"))
    with pytest.raises(ConfigError, match=r"earlier: evaluator\.limits\.call_factor was 5\.0, .*; leave it out"):
        opened("evaluator.verdicts_of=[earlier]")


# Tasks held out of a source of their own


@pytest.fixture
def kept(folder: Path) -> Path:
    """Two tasks in a file of their own, at level 1, of which the first is also among the three."""
    rows = [
        {"level_id": 1, "task_id": number, "ref_code": PROGRAM.format(output=output).replace("batch", "rows")}
        for number, output in ((11, "x.tanh()"), (12, "torch.relu(x).sum(dim=1)"))
    ]
    (folder / "kept.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_a_source_of_its_own_is_held_out_whole_or_by_name(kept: Path) -> None:
    chosen = ["tasks.held_out.source=kept.jsonl", "tasks.include=['level1/[23]']"]
    session = opened(*chosen)
    assert names(session) == ["level1/2", "level1/3"], "tasks.include chooses among those to train on"
    assert [task.id for task in session.tasks.held_out] == ["level1/11", "level1/12"]
    assert [task.id for task in session.tasks.assessed] == ["level1/2", "level1/3", "level1/11", "level1/12"]
    named = opened(*chosen, "tasks.held_out.tasks=['*/12']")
    assert [task.id for task in named.tasks.held_out] == ["level1/12"]
    with pytest.raises(TaskError, match=r"tasks\.held_out\.tasks: level1/1 is not among the tasks of kept\.jsonl"):
        opened(*chosen, "tasks.held_out.tasks=[level1/1]")


def test_a_run_that_trains_on_the_structure_of_a_held_out_task_is_refused(
    kept: Path, warpsmith: Callable[..., Result]
) -> None:
    """The two compute a hyperbolic tangent, by other words, other names and other numbers."""
    held_out = "tasks.held_out.source=kept.jsonl"
    expected = (
        r"1 tasks of tasks\.jsonl have the structure of a held-out task: level1/1 \(as level1/11\); leave them out"
    )
    with pytest.raises(TaskError, match=expected):
        opened(held_out)
    done = warpsmith("run", "local", "tasks.source=tasks.jsonl", held_out)
    assert done.exit_code == 2
    assert "level1/1 (as level1/11)" in done.stderr
    assert not (kept / "runs").exists(), "nothing was written"
    assert names(opened(held_out, "tasks.held_out.tasks=[level1/12]")) == ["level1/1", "level1/2", "level1/3"]


def test_a_held_out_task_without_a_known_structure_is_refused(kept: Path) -> None:
    row = {"level_id": 1, "task_id": 13, "ref_code": PROGRAM.format(output="x * float(x.sum())")}
    (kept / "kept.jsonl").write_text(json.dumps(row))
    with pytest.raises(TaskError, match=r"the structure of level1/13: .*cannot be told from those of other tasks"):
        opened("tasks.held_out.source=kept.jsonl")


def test_a_marked_task_of_a_held_out_source_is_never_trained_on(kept: Path, audited: Path) -> None:
    """Not even if marked tasks are kept."""
    (kept / "kept.jsonl").write_text((kept / "tasks.jsonl").read_text().replace('"task_id": ', '"task_id": 2'))
    mark = TaskAudit(
        "level1/22", load_tasks("kept.jsonl")[1].text_digest, "2", (AuditFinding(FindingKind.CONSTANT, ""),)
    )
    write_audits([mark], audited)
    chosen = ["tasks.held_out.source=kept.jsonl", "tasks.audit=audits.parquet", "tasks.source=bundled"]
    kept_out = opened(*chosen).tasks
    assert [task.id for task in kept_out.held_out] == ["level1/21", "level1/23"]
    all_held_out = opened(*chosen, "tasks.marked=keep").tasks
    assert [task.id for task in all_held_out.held_out] == ["level1/21", "level1/22", "level1/23"]
    assert not {task.id for task in all_held_out.training} & {"level1/21", "level1/22", "level1/23"}


def test_a_source_and_a_share_are_refused_and_so_is_an_id_of_two(kept: Path) -> None:
    with pytest.raises(ConfigError, match="a share or a source, not both"):
        config_of("tasks.held_out.source=kept.jsonl", "tasks.held_out.share=0.2")
    with pytest.raises(TaskError, match=r"level1/1 is a task of tasks\.jsonl, too"):
        opened("tasks.held_out.source=tasks.jsonl")


def test_an_assessment_measures_all_that_is_held_out_and_so_many_others(folder: Path) -> None:
    tasks = opened("tasks.source=bundled", "tasks.held_out.share=0.2").tasks
    measured = tasks.measured(6)
    assert [task for task in measured if task in tasks.held_out] == tasks.held_out
    others = [task.id for task in measured if task in tasks.training]
    assert len(others) == 6
    assert {name.partition("/")[0] for name in others} == {"level1", "level2", "level3"}
    assert set(others) < {task.id for task in tasks.measured(12)}, "more tasks are added to the same"
    assert tasks.measured(0) == tasks.assessed
    again = opened("tasks.source=bundled", "tasks.held_out.share=0.2", "assessment.training_tasks=6").tasks
    assert [task.id for task in again.measured(6)] == [task.id for task in measured]
