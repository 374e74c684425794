"""A learner's memory is measured by stage, and the longest sequence is found, up to the memory or a limit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learner_memory import STAGES, extrapolated, next_length

ROOT = Path(__file__).parents[2]


def run(output: Path, *arguments: str) -> Any:
    command = [sys.executable, "-m", "benchmarks.learner_memory", *arguments, "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(output.read_text())


def found_by(fits_up_to: int, limit: int, capacity: int | None) -> tuple[list[int], int]:
    """The lengths that a search tries if memory is 100 bytes and one for each token; and the longest that fits."""
    fitting: list[dict[str, Any]] = [{"length": 64, "peak": 164}]
    tried, too_long = [], None
    while (length := next_length(fitting, too_long, limit, capacity)) is not None:
        tried.append(length)
        if length <= fits_up_to:
            fitting.append({"length": length, "peak": length + 100})
        else:
            too_long = length
        assert len(tried) < 30
    return tried, fitting[-1]["length"]


@pytest.mark.parametrize("fits_up_to", [64, 1000, 5000, 65_000])
@pytest.mark.parametrize("known", [True, False])
def test_the_longest_length_is_found_to_a_tenth(fits_up_to: int, known: bool) -> None:
    tried, longest = found_by(fits_up_to, 1 << 20, fits_up_to + 100 if known else None)
    assert fits_up_to / 1.12 <= longest <= fits_up_to
    assert len(tried) <= (8 if known else 16)


def test_a_limit_is_reached_and_never_exceeded() -> None:
    tried, longest = found_by(10**9, 3000, None)
    assert longest == max(tried) == 3000


def test_linear_growth_predicts_the_length_at_which_memory_ends() -> None:
    fitting = [{"length": 100, "peak": 300}, {"length": 200, "peak": 400}]
    assert extrapolated(fitting, 1000) == 800
    assert extrapolated(fitting, None) is None


@pytest.mark.slow
def test_a_learner_is_measured_by_stage(tmp_path: Path) -> None:
    sizes = ["--prompt", "32", "--response", "32", "--samples", "8"]
    figures = run(tmp_path / "figures.json", "peak", "--model", "random-tiny", *sizes, "learner.lora.rank=4")
    assert set(STAGES) <= figures["measured"].keys()
    assert figures["measured"]["optimiser"] >= figures["measured"]["weights"]
    assert 0 < figures["parts"]["reference"] < figures["parts"]["weights"], "a copy of the adapters"


@pytest.mark.slow
def test_the_search_goes_on_in_a_new_learner_after_one_ran_out_of_memory(tmp_path: Path) -> None:
    figures = run(tmp_path / "figures.json", "longest", "--model", "random-tiny", "--start", "256", "--memory", "0.2")
    assert {trial["fits"] for trial in figures["trials"]} == {True, False}
    assert figures["longest"] == max(trial["length"] for trial in figures["trials"] if trial["fits"])
    assert not figures["limited"]
