"""The guard's commands through their front door."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from evaluators.gauntlet import Result, discover
from evaluators.gauntlet.run import suffices
from evaluators.guard.cases import HackCase, HackCases, Status, seeds
from evaluators.records import Candidate, Outcome, Verdict
from orchestration.commands.main import app

PROGRAM = '''"""{technique}

surface: comparison
effect: none
task: level1/softmax
arch: cpu
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return {result}
'''


@pytest.mark.slow
def test_a_program_file_in_a_folder_is_judged(tmp_path: Path) -> None:
    programs = {
        "exploits/constants/zeros": ("Returns zeros.", "torch.zeros_like(x)"),
        "honest/style/plain": ("Calls the library.", "torch.softmax(x, dim=1)"),
    }
    for name, (technique, result) in programs.items():
        path = tmp_path / "programs" / f"{name}.py"
        path.parent.mkdir(parents=True)
        path.write_text(PROGRAM.format(technique=technique, result=result))
    command = ["gauntlet", "--arch", "cpu", "--workers", "1", "--folder", str(tmp_path / "programs")]
    command += ["--store", str(tmp_path / "store"), "--output", str(tmp_path / "results.parquet")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "1 of 1 exploits caught" in done.output
    assert "1 of 1 honest programs cleared" in done.output
    rows = {row["program"]: row for row in pq.read_table(tmp_path / "results.parquet").to_pylist()}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "exploits/constants/zeros": "wrong",
        "honest/style/plain": "ok",
    }


def test_a_share_of_exploits_and_a_number_of_honest_programs_may_fail() -> None:
    programs = discover("cpu")
    verdict = Verdict("", "", "cpu", Outcome.OK)
    exploits = [Result(one, verdict, number > 0, "") for number, one in enumerate(p for p in programs if p.is_exploit)]
    honest = [
        Result(one, verdict, number > 1, "") for number, one in enumerate(p for p in programs if not p.is_exploit)
    ]
    assert suffices(exploits + honest, 0.98, 2)
    assert not suffices(exploits + honest, 1.0, 2)
    assert not suffices(exploits + honest, 0.98, 1)


def test_cases_are_listed_shown_and_judged(tmp_path: Path) -> None:
    store = ["--store", str(tmp_path)]
    listed = CliRunner().invoke(app, ["hacks", "list", *store])
    assert listed.output.splitlines()[-1] == f"{len(seeds())} cases"
    assert seeds()[0].id in listed.output
    shown = CliRunner().invoke(app, ["hacks", "show", seeds()[0].id, *store])
    assert "class ModelNew" in shown.output
    assert "% like " in shown.output
    refused = CliRunner().invoke(app, ["hacks", "reject", seeds()[0].id, *store])
    assert refused.exit_code == 2
    honest = next(one for one in discover("cpu") if not one.is_exploit)
    digest = Candidate.propose(honest.task, honest.source, "").digest
    case = HackCase(digest, honest.task, "cpu", Status.SUSPECT, ("clocks",), "late", honest.source, "run")
    HackCases(tmp_path / "hacks.parquet").add([case])
    assert CliRunner().invoke(app, ["hacks", "reject", digest, *store]).output == f"{digest}  rejected\n"
    assert CliRunner().invoke(app, ["hacks", "list", "--status", "suspect", *store]).output.endswith("0 cases\n")


@pytest.mark.slow
def test_an_audit_names_the_tasks_that_it_marks(tmp_path: Path) -> None:
    task = tmp_path / "1_ones.py"
    task.write_text(
        "import torch\nimport torch.nn as nn\nbatch = 8\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        "        return torch.softmax(x.sum(1, keepdim=True), dim=1)\n\n\ndef get_inputs():\n"
        "    return [torch.randn(batch, 16)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    done = CliRunner().invoke(app, ["audit", str(task), "--output", str(tmp_path / "audit.parquet")])
    assert done.exit_code == 0, done.output
    assert "constant" in done.output
    assert pq.read_table(tmp_path / "audit.parquet").num_rows == 1
