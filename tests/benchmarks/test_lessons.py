"""Lessons by kind, of the published rows on bundled tasks, whose programs are in the project."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.lessons import verdicts_of
from evaluators.records import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "results" / "second-window"


def test_each_verdict_has_the_kind_of_its_program_and_is_a_lesson_if_it_is_right_and_fast(tmp_path: Path) -> None:
    everything = pq.read_table(PAGE / "verdicts.parquet")
    of_sft = pc.and_(
        pc.equal(everything["phase"], "1-sft"), pc.match_substring_regex(everything["task"], "level1/[a-z]")
    )
    pq.write_table(everything.filter(of_sft), tmp_path / "verdicts.parquet")
    rows = pd.read_parquet(tmp_path / "verdicts.parquet")
    table = verdicts_of(tmp_path, "bundled", "cuda", 1.05)
    assert len(table) == len(rows)
    assert table.kind.value_counts().to_dict() == {"torch": 19, "torch.compile": 1}
    assert table.right.sum() == (rows.outcome == Outcome.OK).sum() > table.lesson.sum() > 0
    assert (table[table.lesson].speedup >= 1.05).all()
    assert table.seconds.notna().sum() == table.right.sum()
    with pytest.raises(KeyError):
        verdicts_of(PAGE, "bundled", "cuda", 1.05)  # its generated tasks are not here
