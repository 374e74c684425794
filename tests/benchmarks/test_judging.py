"""The seconds of judging are read from a published run's rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.judging import verdict_costs
from evaluators.records import Outcome, Verdict, verdict_table


def verdict(name: str, outcome: Outcome, **cost: float) -> Verdict:
    return Verdict(name, "level1/softmax", "cpu", outcome, cost=cost)


def test_a_verdict_counts_once_and_verdicts_with_a_first_look_count_separately(tmp_path: Path) -> None:
    rows = [
        verdict("a", Outcome.OK, total=2.0, time=1.0),
        verdict("a", Outcome.OK, total=2.0, time=1.0),
        verdict("a", Outcome.OK, total=3.0, time=1.5),
        verdict("b", Outcome.RUNTIME_ERROR, total=0.4, look=0.3),
        verdict("c", Outcome.RUNTIME_ERROR, total=1.0),
    ]
    pq.write_table(verdict_table(rows), tmp_path / "verdicts.parquet")
    totals = {key: [cost["total"] for cost in group] for key, group in verdict_costs(tmp_path).items()}
    assert totals == {
        ("ok", False): [2.0, 3.0],
        ("runtime_error", True): [pytest.approx(0.4)],
        ("runtime_error", False): [1.0],
    }
