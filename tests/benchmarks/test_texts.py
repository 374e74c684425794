"""Hostile texts are the same for the same seed, and a text on which the judge spends too long fails the benchmark."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from benchmarks.texts import app
from benchmarks.texts_families import FAMILIES, hostile_texts
from benchmarks.texts_readers import READERS
from benchmarks.texts_tables import MOST_SECONDS, is_slow
from evaluators.evaluator import Evaluator
from evaluators.syntax import MAX_CHARACTERS, why_not_python

COUNT = 3 * len(FAMILIES)


@pytest.mark.slow
def test_a_seed_gives_the_same_texts_of_every_family() -> None:
    texts = hostile_texts(COUNT, 1)
    assert texts == hostile_texts(COUNT, 1)
    assert {text.family for text in texts} == set(FAMILIES)
    assert len({text.source for text in texts}) == COUNT
    assert len({text.source for text in texts} & {text.source for text in hostile_texts(COUNT, 2)}) < COUNT / 10
    assert 0.9 * MAX_CHARACTERS < max(len(text.source) for text in texts) < MAX_CHARACTERS


@pytest.mark.slow
def test_many_texts_are_programs_and_many_are_refused() -> None:
    programs = [why_not_python(text.source) is None for text in hostile_texts(COUNT, 1) if text.base]
    assert 0.5 < sum(programs) / len(programs) < 0.95
    assert sum(why_not_python(text.source) is not None for text in hostile_texts(COUNT, 1)) > COUNT / 4


@pytest.mark.parametrize(
    ("seconds", "asked", "slow"),
    [(1.0 + MOST_SECONDS / 2, True, False), (1.0 + 2 * MOST_SECONDS, True, True), (2 * MOST_SECONDS, False, True)],
)
def test_the_judge_is_slow_beyond_an_ordinary_program(seconds: float, asked: bool, slow: bool) -> None:
    row = {"family": "brackets", "cpu": seconds, "ordinary_cpu": 1.0, "asked": asked}
    assert is_slow(row) == slow


@pytest.mark.slow
def test_a_run_judges_prints_and_keeps_its_figures(tmp_path: Path) -> None:
    out = tmp_path / "texts.parquet"
    arguments = ["--count", "1", "--out", str(out)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    (row,) = (row for row in pq.read_table(out).to_pylist() if row["family"])
    assert (row["family"], row["asked"], row["trials"], row["over_limit"]) == ("brackets", False, 1, False)
    assert {name for name, _ in row["reading"]} == set(READERS)
    printed = CliRunner().invoke(app, ["table", "--out", str(out)])
    assert "1 texts: 0 over their limits" in printed.output


@pytest.mark.slow
def test_a_judge_that_takes_long_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = Evaluator.evaluate

    def slowly(*arguments: object, **options: object) -> object:
        end = time.process_time() + 2 * MOST_SECONDS
        while time.process_time() < end:
            pass
        return evaluate(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Evaluator, "evaluate", slowly)
    assert CliRunner().invoke(app, ["--count", "1", "--out", str(tmp_path / "texts.parquet")]).exit_code == 1
