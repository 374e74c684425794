"""The command line through its front door: how it refuses bad input, and that it starts fast."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "ray", "pyarrow", "transformers", "mlflow", "scipy", "matplotlib")


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
        (["track", "nowhere"], "nowhere"),
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


def test_help_imports_no_heavy_package() -> None:
    code = f"import sys, orchestration.commands.main; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
