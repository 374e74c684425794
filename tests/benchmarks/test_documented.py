"""The pages on runs and benchmarks quote what commands print from the published rows and figures."""

from __future__ import annotations

import contextlib
import runpy
import sys
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REAL, EARLIER, BENCHMARKS = "guides/real-runs.md", "guides/earlier-runs.md", "benchmarks.md"
PRINTED = [
    (EARLIER, "copies", "docs/results/coder", 8),
    (EARLIER, "copies", "docs/results/right-alone", 8),
    (EARLIER, "copies", "docs/results/half-hour", 9),
    (EARLIER, "judging", "docs/results/coder", 9),
    (EARLIER, "course", "docs/results/coder --baselines docs/results/*", 25),
    (EARLIER, "course", "docs/results/half-hour --baselines docs/results/*", 24),
    (EARLIER, "copies", "docs/results/hour", 9),
    (EARLIER, "judging", "docs/results/hour", 9),
    (EARLIER, "course", "docs/results/hour --baselines docs/results/*", 28),
    (REAL, "copies", "docs/results/rehearsed", 9),
    (REAL, "judging", "docs/results/rehearsed", 8),
    (REAL, "course", "docs/results/rehearsed --baselines docs/results/*", 28),
    (BENCHMARKS, "evaluator", "table", 112),
    (BENCHMARKS, "build", "table", 56),
]


@pytest.mark.parametrize(("page", "module", "argument", "count"), PRINTED)
def test_the_page_has_every_line_that_the_command_prints(
    page: str,
    module: str,
    argument: str,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The commands run in this process: their imports take most of the time."""
    monkeypatch.chdir(ROOT)
    words = [sorted(map(str, Path().glob(word))) if "*" in word else [word] for word in argument.split()]
    monkeypatch.setattr(sys, "argv", [module, *chain.from_iterable(words)])
    with contextlib.suppress(SystemExit):  # how typer ends
        runpy.run_module(f"benchmarks.{module}", run_name="__main__")
    printed = capsys.readouterr().out
    lines = {" ".join(line.split()) for line in printed.splitlines() if any(map(str.isalnum, line))}
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert lines <= {" ".join(line.split()) for line in text.splitlines()}
    assert len(lines) == count
