"""A run as a page of results, through `warpsmith report --publish`: nothing in it belongs to others, and links work."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from configs.load import load_config
from configs.schema import RunConfig
from evaluators.records import Candidate, Estimate, Finding, Outcome, Verdict
from evaluators.stored.verdicts import REUSED_FROM
from learners.records import Rollout
from orchestration.commands.main import app
from orchestration.report import build_report, render_html
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState
from tests.orchestration.report.samples import terminal_text

OURS, THEIRS = "level1/softmax", "level2/99"
CLOCKS = (Finding("clocks", "hack", "late"),)
MEMORY = (Finding("memory", "suspect", "grew"), Finding("text", "hint", "odd"))
Speeds = Mapping[str, Sequence[float | None]]


def write_step(run: RunDirectory, phase: str, step: int, speeds: Speeds, guard: tuple[Finding, ...] = ()) -> None:
    """Writes one response per speed-up over eager. The best baseline is 1.25 times as fast as eager. None: wrong."""
    rollouts, verdicts = [], []
    for task, values in speeds.items():
        for speed in values:
            candidate = Candidate.propose(task, f"speed = {speed}", "policy:1")
            over = {} if speed is None else {"eager": speed, "torch_compile": speed / 1.25}
            verdicts.append(
                Verdict(
                    candidate.digest,
                    task,
                    "cpu",
                    Outcome.WRONG if speed is None else Outcome.OK,
                    message="quoted from SECRET",
                    speedups={name: Estimate(value, value, value, 9) for name, value in over.items()},
                    guard=guard,
                    evaluator={"preset": "fast", "torch": "2.0"},
                )
            )
            text = f"answer to {task}"
            rollouts.append(
                Rollout(
                    task, task, "SECRET", text, (1,), (2, 3), (-1.0, -1.0), 1, candidate_digest=candidate.digest,
                    reward=speed or 0.0, copy_of="reference" if speed == 3.0 else "",
                )
            )  # fmt: skip
    run.samples.write(phase, step, rollouts)
    run.verdicts.write(phase, step, verdicts)
    run.metrics.write(phase, step, {"step_seconds": 90.0, "pipeline_seconds": 30.0})


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run on two tasks, one of them held out."""
    run = RunDirectory(tmp_path, "small")
    config = RunConfig(name="small", root=str(tmp_path))
    config.evaluator.baselines = ["eager", "torch_compile"]
    run.write_config(config)
    run.write_held_out([THEIRS])
    write_step(run, "assess/base", 0, {OURS: [None, 1.0], THEIRS: [None, None]})
    write_step(run, "1-contrastive_rl", 0, {OURS: [1.5, None]})
    write_step(run, "1-contrastive_rl", 1, {OURS: [9.0, 2.0]}, CLOCKS)
    write_step(run, "assess/1-contrastive_rl", 0, {OURS: [2.0, 4.0], THEIRS: [3.0, None]}, MEMORY)
    run.write_state(RunState(phase="contrastive_rl", step=2, finished=True))
    return run


def report(run: RunDirectory, folder: Path) -> Result:
    assert run.local_path is not None
    return CliRunner().invoke(app, ["report", str(run.local_path), "--publish", str(folder)])


@pytest.fixture
def published(run: RunDirectory, tmp_path: Path) -> Path:
    done = report(run, tmp_path / "results" / "small")
    assert done.exit_code == 0, done.output
    page = tmp_path / "results" / "small" / "README.md"
    assert done.stdout.splitlines()[-1] == str(page)
    return page


def table(text: str, title: str, group: str = "") -> list[list[str]]:
    """The rows of the first table below a heading, with its head first. `group`: the heading above that one."""
    section = text.split(f"## {group}\n", 1)[1].split("\n## ")[0] if group else text
    lines = section.split(f"# {title}\n", 1)[1].split("\n## ")[0].split("\n### ")[0].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    return [rows[0], *rows[2:]]


def figures(text: str, group: str) -> dict[str, dict[str, str]]:
    """All figures of a group of tasks, by the name of their row and by their column."""
    found: dict[str, dict[str, str]] = {}
    for title in ("What is right", "What is faster", "How fast right samples are", "At least one of k samples"):
        head, *rows = table(text, title, group)
        for name, *cells in rows:
            found.setdefault(name, {}).update(zip(head[1:], cells, strict=True))
    return found


def test_training_and_held_out_tasks_have_tables_each(published: Path) -> None:
    text = published.read_text()
    assert table(text, "What is right", "Training tasks")[0][:5] == ["stage", "tasks", "samples", "success", "correct"]
    of_training = figures(text, "Training tasks")
    last = of_training["contrastive_rl"]
    assert last["success"].startswith("100.0% (")
    assert (last["mean vs eager"], last["geo-mean vs eager"]) == ("3.00x (2.00-4.00)", "2.83x (2.00-4.00)")
    assert last["mean vs best"].startswith("2.40x (")
    assert [last[name].split()[0] for name in ("copies", "faster", "improved")] == ["0.0%", "100.0%", "100.0%"]
    assert [last[name].split()[0] for name in ("new", "new, faster", "own kernel")] == ["100.0%", "100.0%", "-"]
    assert (last["all"], last["gain"]) == ("2.83x (2.00-4.00)", "2.83x (2.00-4.00)")
    assert of_training["base"]["success"].startswith("50.0% (")
    held_out = figures(text, "Held-out tasks")
    last = held_out["contrastive_rl"]
    assert (last["tasks"], last["correct"]) == ("1", "1/1 (100.0%)")
    assert last["median vs eager"] == "3.00x", "one sample has no interval"
    assert [last[name].split()[0] for name in ("copies", "faster", "improved")] == ["50.0%", "50.0%", "50.0%"]
    assert [last[name].split()[0] for name in ("new", "new, faster", "faster @1")] == ["0.0%", "0.0%", "0.0%"]
    assert held_out["base"]["mean vs eager"] == "-"
    assert "contrastive_rl against base: success +50.0 points (" in text
    assert "all samples 2.83x as fast (2.00-4.00; over samples of these very tasks 2.00-4.00)." in text


def test_constant_policies_stand_below_the_stages(published: Path) -> None:
    text = published.read_text()
    of_training = figures(text, "Training tasks")
    assert list(of_training) == ["base", "contrastive_rl", "reference", "torch.compile"]
    reference, compiled = of_training["reference"], of_training["torch.compile"]
    assert (reference["success"], reference["copies"], reference["new"]) == ("100.0%", "100.0%", "0.0%")
    assert (reference["mean vs eager"], reference["mean vs best"], reference["all"]) == ("1.00x", "0.80x", "1.00x")
    assert (compiled["mean vs eager"], compiled["mean vs best"], compiled["all"]) == ("1.25x", "1.00x", "1.25x")
    assert (compiled["faster"], compiled["improved"], compiled["new"]) == ("100.0%", "0.0%", "-")
    assert "Below the stages stand constant policies, with one program a task: the reference itself;" in text


def test_a_page_names_the_keys_that_a_resume_changed(published: Path, run: RunDirectory, tmp_path: Path) -> None:
    assert "resumed" not in published.read_text().replace("again resumes", "")
    at = {"phase": "1-contrastive_rl", "step": 1}
    rate = {**at, "key": "contrastive_rl.learning_rate", "before": "2e-05", "after": "0.0003"}
    moved = {**at, "key": "root", "before": "/here", "after": "/there"}
    run.write_state(RunState(phase="contrastive_rl", step=2, finished=True, extra={"changed": [rate, moved]}))
    assert report(run, published.parent).exit_code == 0
    text = published.read_text()
    assert "- `contrastive_rl.learning_rate`: 2e-05 to step 1 of 1-contrastive_rl, then 0.0003\n" in text
    assert "/there" not in text


def test_a_page_names_the_code_that_made_the_run(published: Path, run: RunDirectory) -> None:
    assert "git checkout" not in published.read_text()
    commit = "0123456789abcdef" * 2 + "01234567"
    code = [
        {"version": commit, "phase": "", "step": 0},
        {"version": f"{commit[::-1]}-dirty", "phase": "1-contrastive_rl", "step": 1},
        {"version": "0.1.0", "phase": "1-contrastive_rl", "step": 2},
    ]
    run.write_state(RunState(phase="contrastive_rl", step=2, finished=True, extra={"code": code}))
    assert report(run, published.parent).exit_code == 0
    assert (
        "```sh\n"
        "git checkout 0123456789\n"
        "git checkout 76543210fe  # from step 1 of 1-contrastive_rl on, with changes that no commit has\n"
        "# Warpsmith 0.1.0  # from step 2 of 1-contrastive_rl on\n"
        "warpsmith run config.yaml"
    ) in published.read_text()


def test_a_page_names_the_runs_whose_verdicts_were_taken_over(published: Path, run: RunDirectory) -> None:
    assert "taken over" not in published.read_text()
    (row, *_) = run.verdicts.read("assess/base").to_pylist()
    verdict = Verdict.from_row(row)
    taken = replace(verdict, evaluator={**verdict.evaluator, REUSED_FROM: "earlier"})
    run.verdicts.write("assess/base", 0, [taken])
    run.verdicts.write("assess/base", 1, [taken])  # two rows of one program
    assert report(run, published.parent).exit_code == 0
    assert "taken over, of 7 programs: 1 from earlier (`evaluator.verdicts_of`)" in published.read_text()


def test_the_terminal_and_the_html_page_show_both_groups_too(run: RunDirectory) -> None:
    made = build_report(run)
    for shown in (terminal_text(made), render_html(made)):
        training, held_out = shown.index("Training tasks"), shown.index("Held-out tasks")
        assert training < held_out
        assert "2.83x" in shown[training:held_out]
        assert "3.00x" in shown[held_out:]
    run.write_held_out([])
    made = build_report(run)
    for shown in (terminal_text(made), render_html(made)):
        assert "Held-out" not in shown
        assert "Training tasks" not in shown


def test_findings_of_the_guard_are_counted_by_phase_and_stage(published: Path) -> None:
    assert table(published.read_text(), "What the guard found") == [
        ["kind", "contrastive_rl", "after base", "after contrastive_rl", "after base, held out",
         "after contrastive_rl, held out"],
        ["memory", "0", "0", "2", "0", "2"],
        ["clocks", "2", "0", "0", "0", "0"],
    ]  # fmt: skip


def test_every_link_has_its_file_and_every_plot_can_be_read(published: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", published.read_text())
    assert {"steps.csv", "config.yaml", "samples.parquet", "verdicts.parquet", "metrics.parquet"} < set(links)
    assert {"progress.svg", "doubted.svg", "speedups.svg", "speedups_held_out.svg"} < set(links)
    for link in links:
        assert (published.parent / link).is_file(), link
    for plot in published.parent.glob("*.svg"):
        text = plot.read_text()
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in text
    assert load_config(published.parent / "config.yaml").name == "small"


def test_the_csv_file_has_a_line_per_step(published: Path) -> None:
    with open(published.parent / "steps.csv", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["phase"], first["step"], first["success"], first["mean_speedup"]) == (
        "1-contrastive_rl", "0", "0.5", "1.5",
    )  # fmt: skip
    assert (second["doubted"], second["kl"], second["copies"]) == ("1", "", "0")


def test_the_raw_rows_hold_everything_that_is_ours_and_nothing_of_others(published: Path) -> None:
    samples = pq.read_table(published.parent / "samples.parquet").to_pylist()
    assert len(samples) == 12
    assert {(row["task_id"], row["response"]) for row in samples} == {(OURS, f"answer to {OURS}"), (THEIRS, None)}
    assert {row["response_tokens"] for row in samples} == {2}
    known = {row["candidate"] for row in pq.read_table(published.parent / "verdicts.parquet").to_pylist()}
    assert {row["candidate_digest"] for row in samples} == known
    for file in published.parent.iterdir():
        content = file.read_bytes()
        if file.suffix == ".parquet":
            content = str(pq.read_table(file).to_pylist()).encode()
        assert b"SECRET" not in content, file


def test_minutes_and_versions_are_on_the_page(published: Path) -> None:
    text = published.read_text()
    assert "1-contrastive_rl 3.0, assessments 1.0" in text
    assert "torch 2.0" in text


def test_publishing_again_replaces_the_page_and_old_plots(run: RunDirectory, published: Path) -> None:
    (published.parent / "old.svg").write_text("<svg/>")
    run.write_held_out([])
    assert report(run, published.parent).exit_code == 0
    assert "Held-out" not in published.read_text()
    assert not (published.parent / "old.svg").exists()
    assert not (published.parent / "speedups_held_out.svg").exists()


def test_a_run_that_was_not_assessed_yet_gives_a_page(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "young")
    run.write_config(RunConfig(name="young", root=str(tmp_path)))
    assert report(run, tmp_path / "page").exit_code == 0
    assert "No stage has been assessed yet." in (tmp_path / "page" / "README.md").read_text()


def test_a_folder_that_cannot_be_written_is_one_line(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = report(run, tmp_path / "file" / "page")
    assert done.exit_code == 1
    assert "--publish" in done.stderr.strip().splitlines()[-1]


def test_a_published_run_can_be_reported_like_any_other(run: RunDirectory, published: Path, tmp_path: Path) -> None:
    before = sorted(file.name for file in published.parent.iterdir())
    page = tmp_path / "pages" / "small.html"
    done = CliRunner().invoke(app, ["report", str(published.parent), "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == str(page)
    assert "2.83x" in page.read_text()
    original = CliRunner().invoke(app, ["report", str(run.local_path)]).stdout.splitlines()
    assert done.stdout.splitlines()[2:-1] == original[2:-1], "the same tables"
    assert CliRunner().invoke(app, ["report", str(published.parent)]).exit_code == 0
    assert sorted(file.name for file in published.parent.iterdir()) == before, "nothing is written there"
