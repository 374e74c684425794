"""`warpsmith baseline` through its front door: what it prints and how it exits."""

import json
from pathlib import Path

import pytest

from tests.orchestration.commands.programs import SHIFT

# A model that refuses the attribute that torch.compile's baseline adds.
REFUSING = SHIFT.replace(
    "    def forward",
    """    def __setattr__(self, name, value):
        if name == "compiled":
            raise AttributeError("not this one")
        super().__setattr__(name, value)

    def forward""",
)


@pytest.mark.slow
def test_evaluate_reads_baselines_from_the_default_store(warpsmith, tmp_path: Path, cache: Path) -> None:
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
    # On a busy machine, the times of a correct program may be doubted. This test is not about that.
    assert set(verdict["speedups"] or verdict["doubted"]) == {"eager", "torch_compile"}
    assert {path: path.stat().st_mtime_ns for path in (cache / "warpsmith/baselines").glob("*.json")} == kept


@pytest.mark.slow
def test_baseline_exits_with_1_when_nothing_could_be_measured(warpsmith, tmp_path: Path) -> None:
    (tmp_path / "refusing.py").write_text(REFUSING)
    done = warpsmith("baseline", "refusing.py", "--arch", "cpu", "--baselines", "torch_compile", "--store", "store")
    assert done.exit_code == 1, done.output
    assert done.stdout.splitlines()[-1] == "1 tasks: 0 baselines measured, 1 absent"


@pytest.mark.slow
def test_the_baselines_of_a_configurations_tasks_are_measured(warpsmith, tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "1_Shift.py").write_text(SHIFT)
    (tmp_path / "level1" / "2_Refusing.py").write_text(REFUSING)
    (tmp_path / "run.yaml").write_text(f"tasks: {{source: 'bundled,{tmp_path}', include: [level1/2]}}")
    done = warpsmith("baseline", "run.yaml", "--arch", "cpu", "--baselines", "torch_compile", "--store", "store")
    assert done.stdout.splitlines()[-1] == "1 tasks: 0 baselines measured, 1 absent", done.output
