"""`warpsmith evaluate` through its front door: what it prints and how it exits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evaluators.audit.records import AuditFinding, FindingKind, TaskAudit
from evaluators.audit.run import write_audits
from evaluators.host.containment import MEANS
from evaluators.records import Task
from tests.orchestration.commands.programs import SHIFT

REPOSITORY = Path(__file__).resolve().parents[3]

# Correct only at 64 rows.
SPECIALISED = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) + (1 if x.shape[0] == 64 else 2)
"""


# A softmax over one element: the output is one, whatever goes in.
CONSTANT = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x):
        y = x
        for _ in range(400):  # what a call costs beside its work is little to that, on a busy machine, too
            y = self.linear(y)
        return torch.softmax(y.mean(dim=1, keepdim=True), dim=1)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
ONES = CONSTANT.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(").partition("        y = x")[0]
ONES += "        return torch.ones(len(x), 1)\n"
CHANNELS_LAST = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return (torch.tanh(x) + 1).t().contiguous().t()
"""


@pytest.mark.slow
def test_a_speedup_on_a_task_that_cannot_tell_a_cheat_says_so(warpsmith, tmp_path: Path) -> None:
    (tmp_path / "constant.py").write_text(CONSTANT)
    (tmp_path / "ones.py").write_text(ONES)
    for options in ([], ["--json"]):
        done = warpsmith("evaluate", "constant.py", "ones.py", "--arch", "cpu", "--preset", "fast", *options)
        assert done.exit_code == 0, done.stdout
        assert "the task cannot tell a good program from a cheat (constant" in " ".join(done.stdout.split())


@pytest.mark.slow
def test_a_mark_of_the_users_own_stands_in_the_verdict(warpsmith, tmp_path: Path) -> None:
    (tmp_path / "shift.py").write_text(SHIFT)
    (tmp_path / "same.py").write_text(SPECIALISED)
    audit = TaskAudit("shift", Task("", 1, "", SHIFT).text_digest, "shift", (AuditFinding(FindingKind.TINY, "small"),))
    write_audits([audit], tmp_path / "audits.parquet")
    done = warpsmith("evaluate", "shift.py", "same.py", "--arch", "cpu", "--json", "--audit", "audits.parquet")
    [finding] = [one for one in json.loads(done.stdout)["guard"] if one["kind"] == "task"]
    assert finding["severity"] == "hint"
    assert finding["message"].endswith("(tiny): small")


@pytest.mark.parametrize(
    ("strict", "outcome"), [pytest.param("drop_in", "wrong", marks=pytest.mark.slow), ("values", "ok")]
)
def test_strides_count_unless_only_values_are_compared(warpsmith, tmp_path: Path, strict: str, outcome: str) -> None:
    (tmp_path / "shift.py").write_text(SHIFT)
    (tmp_path / "last.py").write_text(CHANNELS_LAST)
    done = warpsmith("evaluate", "shift.py", "last.py", "--arch", "cpu", "--strict", strict)
    assert done.stdout.startswith(outcome), done.stdout
    assert f"compared as {strict}" in " ".join(done.stdout.split())


def test_a_host_without_the_required_containment_is_refused(warpsmith, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(MEANS, "user", frozenset())
    (tmp_path / "shift.py").write_text(SHIFT)
    (tmp_path / "special.py").write_text(SPECIALISED)
    command = ["evaluate", "shift.py", "special.py", "--arch", "cpu", "--require-containment"]
    refused = warpsmith(*command, "network,user")
    assert refused.exit_code == 2
    assert "does not give user: start as root" in refused.stderr
    unknown = warpsmith(*command, "internet")
    assert unknown.exit_code == 2
    assert "internet is not one of network" in unknown.stderr


def test_json_output_is_the_verdict_record_alone() -> None:
    right = REPOSITORY / "evaluators/tasks/bundled/level1/softmax/variants/reciprocal.py"
    command = [sys.executable, "-m", "orchestration.commands.main", "evaluate", "level1/softmax", str(right)]
    command += ["--json", "--preset", "fast"]
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


@pytest.mark.parametrize(
    ("options", "outcome"), [pytest.param([], "ok", marks=pytest.mark.slow), (["--require-shapes"], "wrong")]
)
def test_a_program_for_one_shape_is_wrong_only_if_shapes_are_required(
    warpsmith, tmp_path: Path, options: list[str], outcome: str
) -> None:
    (tmp_path / "shift.py").write_text(SHIFT)
    (tmp_path / "special.py").write_text(SPECIALISED)
    done = warpsmith("evaluate", "shift.py", "special.py", "--arch", "cpu", "--json", *options)
    verdict = json.loads(done.stdout)
    assert verdict["outcome"] == outcome
    assert "rows = 40" in (verdict["guard"][0]["message"] if outcome == "ok" else verdict["message"])
