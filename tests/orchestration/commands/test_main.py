"""The command line through its front door: what it prints and how it exits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from orchestration.commands.main import app

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands' default store stands meanwhile."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def warpsmith(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a command in an empty folder. In this process: a new one would spend seconds on imports each time."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    return invoke


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "nowhere.yaml"], "nowhere.yaml"),
        (["run", "local", "learner.zero_stage=4"], "learner.zero_stage must be 0, 1, 2 or 3, got 4"),
        (["run", "local", "learner.zero_stag=1"], "learner.zero_stag"),
        (["run", "local", "rollout.temperature=-1"], "rollout.temperature"),
        (["run", "local", "tasks.include=[level1/nothing]"], "level1/nothing"),
        (["run", "local", "tasks.marked=drop"], "tasks.marked must be leave_out or keep, got 'drop'"),
        (["run", "local", "tasks.audit=marks.txt"], "tasks.audit must be empty or a .parquet file"),
        (["run", "local", "tasks.audit=absent.parquet"], "absent.parquet"),
        (["run", "local", "policy.model=/no/such/model"], "/no/such/model"),
        (["run", "local", "sft.teachers=[absent.jsonl]"], "absent.jsonl"),
        (["tasks", "nowhere"], "nowhere"),
        (["evaluate", "level1/nothing", "x.py"], "level1/nothing"),
        (["evaluate", "level1/softmax", "absent.py"], "absent.py"),
        (["evaluate", "level1/softmax", __file__, "--preset", "quick"], "quick"),
        (["evaluate", "level1/softmax", __file__, "--arch", "cpu", "--baselines", "cudnn"], "cudnn"),
        (["evaluate", "level1/softmax", __file__, "--arch", "K80"], "K80"),
        (["baseline", "nowhere"], "nowhere"),
        (["baseline", "nowhere.yaml"], "nowhere.yaml: no such config"),
        (["baseline", "bundled", "--arch", "cpu", "--baselines", "cudnn"], "cudnn"),
        (["baseline", "bundled", "--baselines", "eager"], "eager"),
        (["baseline", "bundled", "--levels", "one"], "'one'"),
        (["baseline", "bundled", "--levels", "9"], "--levels 9 leaves no task: there are [1, 2, 3]"),
        (["report", "nowhere"], "nowhere"),
        (["audit", "nowhere"], "nowhere"),
        (["audit", "bundled", "--jobs", "0"], "--jobs must be at least 1"),
        (["audit", "bundled", "--output", "no/x.parquet"], "no folder"),
        (["gauntlet", "--arch", "cpu", "--only", "nonesuch"], "nonesuch"),
        (["gauntlet", "--arch", "cpu", "--folder", "nowhere"], "nowhere"),
        (["hacks", "show", "nonesuch"], "nonesuch"),
        (["hacks", "confirm", "nonesuch"], "nonesuch"),
        (["hacks", "list", "--status", "odd"], "odd"),
    ],
)
def test_bad_input_is_one_line_with_exit_code_2_and_writes_nothing(
    warpsmith, arguments: list[str], expected: str, tmp_path: Path, cache: Path
) -> None:
    done = warpsmith(*arguments)
    assert done.exit_code == 2, done.output
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert expected in lines[0]
    assert list(tmp_path.iterdir()) == []
    assert not (cache / "warpsmith").exists()


def test_tasks_end_with_their_count(warpsmith) -> None:
    assert warpsmith("tasks").stdout.strip().splitlines()[-1] == "24 tasks"


def test_dry_run_prints_the_plan_and_writes_nothing(warpsmith, tmp_path: Path) -> None:
    done = warpsmith("run", "local", "--dry-run", "contrastive_rl.steps=7")
    assert done.exit_code == 0, done.output
    assert "contrastive_rl" in done.stdout
    assert "24 tasks on cpu" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_says_what_memory_a_run_takes_and_refuses_what_cannot_fit(warpsmith) -> None:
    done = warpsmith("run", "local", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "GiB each" in done.stdout
    sizes = ["policy.scratch.hidden_size=16384", "policy.scratch.layers=200", "policy.scratch.heads=128"]
    refused = warpsmith("run", "local", "--dry-run", *sizes)
    assert refused.exit_code == 2
    assert "learner" in refused.output


def test_a_run_takes_the_kind_of_the_machine_for_auto(warpsmith) -> None:
    done = warpsmith("run", "local", "--dry-run", "evaluator.arch=auto")
    assert done.exit_code == 0, done.output
    assert "24 tasks on auto" not in done.stdout
    assert "24 tasks on " in done.stdout


def test_evaluate_prints_the_verdict_record_alone_as_json() -> None:
    variants = REPOSITORY / "evaluators/tasks/bundled/level1/softmax/variants"
    right = next(path for path in sorted(variants.glob("*.py")) if "expect: faster" in path.read_text())
    command = [sys.executable, "-m", "orchestration.commands.main", "evaluate", "level1/softmax", str(right), "--json"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True)
    verdict = json.loads(done.stdout)
    assert verdict["outcome"] == "ok"
    assert verdict["speedups"]["eager"]["low"] <= verdict["speedups"]["eager"]["value"]


def test_evaluate_says_what_is_wrong_and_exits_with_1(warpsmith, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("class ModelNew: pass")
    done = warpsmith("evaluate", "softmax", str(broken))
    assert done.exit_code == 1
    assert "runtime_error" in done.stdout


SHIFT = """
import torch
import torch.nn as nn

rows = 64


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) + 1


def get_inputs():
    return [torch.randn(rows, 512)]


def get_init_inputs():
    return []
"""
# Right at 64 rows only.
SPECIALISED = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) + (1 if x.shape[0] == 64 else 2)
"""


@pytest.mark.parametrize(("options", "outcome"), [([], "ok"), (["--require-shapes"], "wrong")])
def test_a_program_for_one_shape_is_wrong_only_where_shapes_are_required(
    warpsmith, tmp_path: Path, options: list[str], outcome: str
) -> None:
    (tmp_path / "shift.py").write_text(SHIFT)
    (tmp_path / "special.py").write_text(SPECIALISED)
    done = warpsmith("evaluate", "shift.py", "special.py", "--arch", "cpu", "--json", *options)
    verdict = json.loads(done.stdout)
    assert verdict["outcome"] == outcome
    assert "rows = 40" in (verdict["guard"][0]["message"] if outcome == "ok" else verdict["message"])


# A constructor that takes no further attribute, as torch.compile's baseline adds one.
REFUSING = SHIFT.replace(
    "    def forward",
    """    def __setattr__(self, name, value):
        if name == "compiled":
            raise AttributeError("not this one")
        super().__setattr__(name, value)

    def forward""",
)


@pytest.mark.slow
def test_baselines_filled_into_the_default_store_are_read_by_evaluate(warpsmith, tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "level1"
    folder.mkdir()
    (folder / "1_Shift.py").write_text(SHIFT)
    (folder / "2_Refusing.py").write_text(REFUSING)
    (tmp_path / "same.py").write_text(SHIFT.replace("Model(", "ModelNew("))
    filled = warpsmith("baseline", str(tmp_path), "--arch", "cpu", "--baselines", "eager,torch_compile")
    assert filled.exit_code == 0, filled.output
    lines = filled.stdout.splitlines()
    assert lines[0].split() == ["task", "eager", "ms", "torch_compile"]
    name, eager, cell = lines[1].split()
    assert name == "level1/1"
    assert float(cell.removesuffix("x")) > 0
    assert lines[2].split() == ["level1/2", "-", "-"]
    assert "not this one" in lines[3]
    assert lines[-1] == "2 tasks: 1 baselines measured, 1 absent"
    stored = sorted((cache / "warpsmith/baselines").glob("*.json"))
    assert len(stored) == 2
    seconds = {entry["task"]: entry["eager_seconds"] for entry in (json.loads(path.read_text()) for path in stored)}
    assert seconds["level1/1"] > 0
    assert eager == f"{1e3 * seconds['level1/1']:.3f}"
    assert seconds["level1/2"] is None
    assert all((cache / part).stat().st_mode & 0o005 == 0o005 for part in ("warpsmith", "warpsmith/artifacts"))

    kept = {path: path.stat().st_mtime_ns for path in stored}
    options = ["--arch", "cpu", "--baselines", "torch_compile", "--json"]
    verdict = json.loads(warpsmith("evaluate", str(folder / "1_Shift.py"), "same.py", *options).stdout)
    # On a busy machine the times of a right program may be doubted, which is not what is tested here.
    assert set(verdict["speedups"] or verdict["doubted"]) == {"eager", "torch_compile"}
    assert {path: path.stat().st_mtime_ns for path in (cache / "warpsmith/baselines").glob("*.json")} == kept


@pytest.mark.slow
def test_baseline_exits_with_1_when_nothing_could_be_measured(warpsmith, tmp_path: Path) -> None:
    (tmp_path / "refusing.py").write_text(REFUSING)
    done = warpsmith("baseline", "refusing.py", "--arch", "cpu", "--baselines", "torch_compile", "--store", "store")
    assert done.exit_code == 1, done.output
    assert done.stdout.splitlines()[-1] == "1 tasks: 0 baselines measured, 1 absent"


@pytest.mark.slow
def test_the_baselines_of_a_runs_tasks_are_measured_ahead_of_it(warpsmith, tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "1_Shift.py").write_text(SHIFT)
    (tmp_path / "level1" / "2_Refusing.py").write_text(REFUSING)
    (tmp_path / "run.yaml").write_text(f"tasks: {{source: 'bundled,{tmp_path}', include: [level1/2]}}")
    done = warpsmith("baseline", "run.yaml", "--arch", "cpu", "--baselines", "torch_compile", "--store", "store")
    assert done.stdout.splitlines()[-1] == "1 tasks: 0 baselines measured, 1 absent", done.output
