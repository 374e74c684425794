"""`warpsmith compare` says how runs differ, and its numbers are those that MLflow shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from configs.schema import RunConfig, TasksConfig
from evaluators.audit.marks import Mark
from evaluators.audit.records import FindingKind
from orchestration.report import build_report
from orchestration.report.comparison import overall_gain
from orchestration.report.sources import opened
from orchestration.run.directory import RunDirectory
from orchestration.run.tracking import Tracker
from tests.orchestration.mlflow_figures import assessments_in_mlflow, figures_in_report
from tests.orchestration.report.full_run import FullRun, write_full_run
from tests.orchestration.report.samples import write_step

PUBLISHED = Path(__file__).parents[3] / "docs" / "results"
PREFIXES = {"Training tasks": "", "Held-out tasks": "held_out/"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that differ in their seed, in the size of a group and in how fast their last programs are."""
    folder = tmp_path_factory.mktemp("runs")
    write_full_run(folder, "first")
    write_full_run(folder, "second", gain=1.5, seed=1)
    return folder


def compared(warpsmith: Any, *places: object) -> dict[str, Any]:
    done = warpsmith("compare", *map(str, places), "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def track(config: RunConfig, run: RunDirectory, metrics: list[dict[str, float]]) -> str:
    """Logs the assessments as a session does, in a real MLflow on SQLite. Returns the id of the parent run."""
    with Tracker(config, run) as tracker:
        for version, of_stage in enumerate(metrics):
            tracker.log_assessment(f"{version}-sft", of_stage, 10 * version)
    return str(tracker.ids["parent"])


@pytest.mark.slow
def test_the_numbers_are_those_that_mlflow_shows(
    warpsmith: Any, client: MlflowClient, config: RunConfig, tmp_path: Path
) -> None:
    parents, places = {}, []
    for seed, gain in ((0, 1.0), (1, 1.5)):
        full, metrics = write_full_run(tmp_path, f"run-{seed}", gain, seed)
        config.name = full.config.name
        parents[full.config.name] = track(config, full.run, metrics)
        places.append(full.run.local_path)
    answer = compared(warpsmith, *places)
    checked = 0
    for name, parent in parents.items():
        logged = assessments_in_mlflow(client, parent)
        for group in answer["groups"]:
            stages = list(group["runs"][name]["stages"].values())
            assert len(stages) == len(logged) == 3
            for stage, in_mlflow in zip(stages, logged, strict=True):
                expected = figures_in_report(stage, PREFIXES[group["title"]])
                assert {key: in_mlflow[key] for key in expected} == pytest.approx(expected, rel=1e-12)
                checked += len(expected)
    assert checked > 120
    last = {name: answer["groups"][0]["runs"][name]["stages"]["1-contrastive_rl"] for name in parents}
    assert last["run-0"]["speedup_eager"]["max"] == pytest.approx(6.1)
    assert last["run-1"]["speedup_eager"]["max"] == pytest.approx(8.25), "5.5x, and 1.5 times as fast"


def test_so_they_are_if_the_run_keeps_tasks_that_cannot_tell(
    warpsmith: Any, client: MlflowClient, config: RunConfig, tmp_path: Path
) -> None:
    marked = RunConfig(name="marked", root=str(tmp_path), tasks=TasksConfig(marked="keep"))
    marked.evaluator.baselines = ["eager", "torch_compile"]
    full = FullRun(RunDirectory(tmp_path, "marked"), marked)
    full.run.write_config(marked)
    full.run.write_marks({"level1/softmax": Mark("d", "level1/softmax", (FindingKind.CONSTANT,), "always one")})
    metrics = full.assess("base", {"level1/softmax": [40.0, 30.0], "level1/gelu_tanh": [2.0, None]})
    config.name = "marked"
    (logged,) = assessments_in_mlflow(client, track(config, full.run, [metrics]))
    answer = compared(warpsmith, full.run.local_path, full.run.local_path)
    stage = answer["groups"][0]["runs"]["marked (1)"]["stages"]["base"]
    expected = figures_in_report(stage, "")
    assert {key: logged[key] for key in expected} == pytest.approx(expected, rel=1e-12)
    assert (stage["tasks"], stage["speedup_eager"]["max"]) == (1, 2.0)
    assert (logged["marked/success_rate"], logged["marked/speedup_eager/max"]) == (1.0, 40.0)


def test_settings_that_differ_are_named_with_the_value_of_each_run(warpsmith: Any, root: Path) -> None:
    answer = compared(warpsmith, root / "first", root / "second")
    assert answer["differences"] == {"seed": ["0", "1"], "contrastive_rl.group_size": ["4", "5"]}
    assert [run["name"] for run in answer["runs"]] == ["first", "second"]


def test_the_gain_is_over_the_tasks_of_both(warpsmith: Any, root: Path) -> None:
    answer = compared(warpsmith, root / "first", root / "second")
    reports = []
    for name in ("first", "second"):
        with opened(str(root / name)) as source:
            reports.append(build_report(source.run))
    expected = overall_gain(reports[0].stages[-1].rows, reports[1].stages[-1].rows)
    (gain,) = answer["groups"][0]["gains"]
    assert expected is not None
    assert (gain["overall"]["value"], gain["overall"]["low"]) == (expected.value, expected.low)
    assert gain["overall"]["value"] == pytest.approx(1.5 ** (1 / 6)), "of one sample in six"
    assert (gain["tasks"], gain["against"]) == (3, "first, contrastive_rl")


def test_the_terminal_shows_stages_constant_policies_and_gains(warpsmith: Any, root: Path) -> None:
    done = warpsmith("compare", str(root / "first"), str(root / "second"))
    assert done.exit_code == 0, done.output
    text = done.stdout
    assert max(map(len, text.splitlines())) <= 120
    for expected in (
        "What differs", "contrastive_rl.group_size", "Training tasks", "Held-out tasks", "Over eager", "Over best",
        "> 1.01x", "75 %", "max", "reference", "torch.compile", "Against first, contrastive_rl", "8.25x", "6.10x",
        "mean speed-up", "█",
    ):  # fmt: skip
        assert expected in text, expected
    assert "nan" not in text.lower()


@pytest.mark.slow
def test_published_runs_can_be_compared(warpsmith: Any) -> None:
    answer = compared(warpsmith, PUBLISHED / "rehearsed", PUBLISHED / "hour")
    assert answer["differences"]["contrastive_rl.rehearsal"] == ["8", "0"]
    last = answer["groups"][0]["runs"]["rehearsed"]["stages"]["1-contrastive_rl"]
    assert round(last["success_rate"]["value"], 3) == 0.443, "as its page has it"


def test_runs_without_assessments_still_compare(warpsmith: Any, tmp_path: Path) -> None:
    for name in ("young", "younger"):
        RunDirectory(tmp_path, name).write_config(RunConfig(name=name, root=str(tmp_path)))
    answer = compared(warpsmith, tmp_path / "young", tmp_path / "younger")
    assert answer["groups"][0]["gains"] == []
    done = warpsmith("compare", str(tmp_path / "young"), str(tmp_path / "younger"), "--html", "page.html")
    assert done.exit_code == 0, done.output
    assert "The runs have the same configuration." in done.stdout
    assert "younger" in (tmp_path / "page.html").read_text()


def test_runs_of_one_name_are_told_apart_by_their_folders(warpsmith: Any, tmp_path: Path) -> None:
    for folder in ("one", "other"):
        run = RunDirectory(tmp_path / folder, "same")
        run.write_config(RunConfig(name="same", root=str(tmp_path / folder)))
        write_step(run, "assess/base", 0, {"t1": [1.0, 2.0]})
    answer = compared(warpsmith, tmp_path / "one" / "same", tmp_path / "other" / "same")
    assert [run["name"] for run in answer["runs"]] == ["one/same", "other/same"]


def test_bad_input_is_one_line(warpsmith: Any, root: Path, tmp_path: Path) -> None:
    alone = warpsmith("compare", str(root / "first"))
    assert (alone.exit_code, alone.stderr.strip()) == (2, "error: a comparison needs at least two runs, got 1")
    missing = warpsmith("compare", str(root / "first"), str(tmp_path / "none"))
    assert missing.exit_code == 2
    assert "not a run directory" in missing.stderr
    (tmp_path / "file").write_text("")
    page = warpsmith(
        "compare", str(root / "first"), str(root / "second"), "--html", str(tmp_path / "file" / "page.html")
    )
    assert page.exit_code == 1
    assert "--html" in page.stderr.strip().splitlines()[-1]
