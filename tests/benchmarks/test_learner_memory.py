"""The memory of a learner is measured by stage, and the longest sequence found, where memory or a limit ends it."""

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
    """What a search tries in a world where memory is 100 bytes and one a token; and the longest that fits."""
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
def test_the_longest_is_found_to_a_tenth(fits_up_to: int, known: bool) -> None:
    tried, longest = found_by(fits_up_to, 1 << 20, fits_up_to + 100 if known else None)
    assert fits_up_to / 1.12 <= longest <= fits_up_to
    assert len(tried) <= (8 if known else 16)


def test_a_limit_is_reached_and_never_exceeded() -> None:
    tried, longest = found_by(10**9, 3000, None)
    assert longest == max(tried) == 3000


def test_memory_that_grows_with_length_says_where_it_ends() -> None:
    fitting = [{"length": 100, "peak": 300}, {"length": 200, "peak": 400}]
    assert extrapolated(fitting, 1000) == 800
    assert extrapolated(fitting, None) is None


def test_a_learner_is_measured_by_stage(tmp_path: Path) -> None:
    sizes = ["--prompt", "32", "--response", "32", "--samples", "8"]
    found = run(tmp_path / "found.json", "peak", "--model", "random-tiny", *sizes, "learner.lora.rank=4")
    assert set(STAGES) <= found["measured"].keys()
    assert found["measured"]["optimiser"] >= found["measured"]["weights"]
    assert 0 < found["parts"]["reference"] < found["parts"]["weights"], "a copy of the adapters"


@pytest.mark.slow
def test_a_learner_that_runs_out_of_memory_leaves_the_search_to_the_next(tmp_path: Path) -> None:
    found = run(tmp_path / "found.json", "longest", "--model", "random-tiny", "--start", "256", "--memory", "0.2")
    assert {one["fits"] for one in found["trials"]} == {True, False}
    assert found["longest"] == max(one["length"] for one in found["trials"] if one["fits"])
    assert not found["limited"]
