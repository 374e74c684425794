"""The guide on runs of a real model quotes what commands print of the published runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNS = [
    ("copies", "coder", 8),
    ("copies", "right-alone", 8),
    ("copies", "half-hour", 9),
    ("judging", "coder", 9),
    ("course", "coder", 17),
    ("course", "half-hour", 15),
    ("copies", "hour", 9),
    ("judging", "hour", 9),
    ("course", "hour", 16),
    ("copies", "rehearsed", 9),
    ("judging", "rehearsed", 8),
    ("course", "rehearsed", 16),
]


@pytest.mark.parametrize(("module", "run", "count"), RUNS)
def test_the_guide_has_every_line_that_the_command_prints(module: str, run: str, count: int) -> None:
    command = [sys.executable, "-m", f"benchmarks.{module}", f"docs/results/{run}"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = {" ".join(line.split()) for line in printed.splitlines() if any(map(str.isalnum, line))}
    page = (ROOT / "docs" / "guides" / "real-runs.md").read_text(encoding="utf-8")
    assert lines <= {" ".join(line.split()) for line in page.splitlines()}
    assert len(lines) == count
