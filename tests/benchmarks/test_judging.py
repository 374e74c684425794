"""What judging took is read out of a published run's rows, and the guide says what the command prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.judging import verdict_costs
from evaluators.records import Outcome, Verdict, verdict_table

ROOT = Path(__file__).parents[2]


def verdict(name: str, outcome: Outcome, **cost: float) -> Verdict:
    return Verdict(name, "level1/softmax", "cpu", outcome, cost=cost)


def test_a_verdict_counts_once_and_those_with_a_look_apart(tmp_path: Path) -> None:
    rows = [
        verdict("a", Outcome.OK, total=2.0, time=1.0),
        verdict("a", Outcome.OK, total=2.0, time=1.0),
        verdict("a", Outcome.OK, total=3.0, time=1.5),
        verdict("b", Outcome.RUNTIME_ERROR, total=0.4, look=0.3),
        verdict("c", Outcome.RUNTIME_ERROR, total=1.0),
    ]
    pq.write_table(verdict_table(rows), tmp_path / "verdicts.parquet")
    found = {key: [cost["total"] for cost in group] for key, group in verdict_costs(tmp_path).items()}
    assert found == {
        ("ok", False): [2.0, 3.0],
        ("runtime_error", True): [pytest.approx(0.4)],
        ("runtime_error", False): [1.0],
    }


def test_the_documented_figures_are_what_the_command_prints() -> None:
    command = [sys.executable, "-m", "benchmarks.judging", "docs/results/coder"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = {" ".join(line.split()) for line in printed.splitlines() if any(map(str.isalnum, line))}
    page = (ROOT / "docs" / "guides" / "real-model.md").read_text(encoding="utf-8")
    assert lines <= {" ".join(line.split()) for line in page.splitlines()}
    assert len(lines) == 6
