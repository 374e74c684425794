"""The command line through its front door: what it prints and how it exits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from orchestration.cli import app

REPOSITORY = Path(__file__).resolve().parents[2]


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
        (["run", "local", "policy.model=/no/such/model"], "/no/such/model"),
        (["run", "local", "sft.teachers=[absent.jsonl]"], "absent.jsonl"),
        (["tasks", "nowhere"], "nowhere"),
        (["evaluate", "level1/nothing", "x.py"], "level1/nothing"),
        (["evaluate", "level1/softmax", "absent.py"], "absent.py"),
        (["evaluate", "level1/softmax", __file__, "--preset", "quick"], "quick"),
        (["evaluate", "level1/softmax", __file__, "--baselines", "cudnn"], "cudnn"),
        (["report", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_line_with_exit_code_2_and_writes_nothing(
    warpsmith, arguments: list[str], expected: str, tmp_path: Path
) -> None:
    done = warpsmith(*arguments)
    assert done.exit_code == 2, done.output
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert expected in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_tasks_end_with_their_count(warpsmith) -> None:
    assert warpsmith("tasks").stdout.strip().splitlines()[-1] == "24 tasks"


def test_dry_run_prints_the_plan_and_writes_nothing(warpsmith, tmp_path: Path) -> None:
    done = warpsmith("run", "local", "--dry-run", "contrastive_rl.steps=7")
    assert done.exit_code == 0, done.output
    assert "contrastive_rl" in done.stdout
    assert "24 tasks on cpu" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_evaluate_prints_the_verdict_record_alone_as_json() -> None:
    variants = REPOSITORY / "evaluators/tasks/bundled/level1/softmax/variants"
    right = next(path for path in sorted(variants.glob("*.py")) if "expect: faster" in path.read_text())
    command = [sys.executable, "-m", "orchestration.cli", "evaluate", "level1/softmax", str(right), "--json"]
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
