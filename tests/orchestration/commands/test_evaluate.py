"""`warpsmith evaluate` through its front door: what it prints and how it exits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.orchestration.commands.programs import SHIFT

REPOSITORY = Path(__file__).resolve().parents[3]

# Correct only at 64 rows.
SPECIALISED = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) + (1 if x.shape[0] == 64 else 2)
"""


def test_json_output_is_the_verdict_record_alone() -> None:
    variants = REPOSITORY / "evaluators/tasks/bundled/level1/softmax/variants"
    right = next(path for path in sorted(variants.glob("*.py")) if "expect: faster" in path.read_text())
    command = [sys.executable, "-m", "orchestration.commands.main", "evaluate", "level1/softmax", str(right), "--json"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True)
    verdict = json.loads(done.stdout)
    assert verdict["outcome"] == "ok"
    assert verdict["speedups"]["eager"]["low"] <= verdict["speedups"]["eager"]["value"]


def test_a_broken_program_is_explained_with_exit_code_1(warpsmith, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("class ModelNew: pass")
    done = warpsmith("evaluate", "softmax", str(broken))
    assert done.exit_code == 1
    assert "runtime_error" in done.stdout


@pytest.mark.parametrize(("options", "outcome"), [([], "ok"), (["--require-shapes"], "wrong")])
def test_a_program_for_one_shape_is_wrong_only_if_shapes_are_required(
    warpsmith, tmp_path: Path, options: list[str], outcome: str
) -> None:
    (tmp_path / "shift.py").write_text(SHIFT)
    (tmp_path / "special.py").write_text(SPECIALISED)
    done = warpsmith("evaluate", "shift.py", "special.py", "--arch", "cpu", "--json", *options)
    verdict = json.loads(done.stdout)
    assert verdict["outcome"] == outcome
    assert "rows = 40" in (verdict["guard"][0]["message"] if outcome == "ok" else verdict["message"])
