"""Baselines that are computed back from verdicts give the same verdicts again."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines_of import fill, quotient
from evaluators.records import Estimate
from evaluators.stored.baselines import BaselineStore
from evaluators.tasks import load_tasks
from evaluators.timing.estimates import divide

ROOT = Path(__file__).parents[2]


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    value = math.exp(draw(st.floats(-4.0, 4.0)))
    return Estimate(
        value, value * math.exp(-draw(st.floats(1e-4, 0.3))), value * math.exp(draw(st.floats(1e-4, 0.3))), 8
    )


@given(estimates(), estimates())
def test_the_quotient_restores_the_divisor(over_eager: Estimate, baseline: Estimate) -> None:
    again = quotient(over_eager, divide(over_eager, baseline))
    assert again.value == pytest.approx(baseline.value)
    assert again.low == pytest.approx(baseline.low, rel=1e-6)
    assert again.high == pytest.approx(baseline.high, rel=1e-6)


def test_restored_baselines_give_the_published_verdicts_again(tmp_path: Path) -> None:
    store, folder = BaselineStore(tmp_path), ROOT / "docs" / "results" / "coder"
    put, missing, versions = fill(store, "bundled", [folder])
    tasks = {task.digest: task for task in load_tasks("bundled", "cuda")}
    assert put == 4 * (len(tasks) - len(missing))
    assert versions["arch"] == "H200"
    assert fill(store, "bundled", [folder])[0] == 0, "stored baselines stay"
    rows = pq.read_table(folder / "verdicts.parquet", columns=["speedups", "evaluator"]).to_pylist()
    compared = 0
    for row in rows:
        speedups, task = dict(row["speedups"]), tasks.get(dict(row["evaluator"])["task_digest"])
        for name in speedups.keys() - {"eager"} if task else ():
            known = store.get(task, name, versions)  # type: ignore[arg-type]
            assert known is not None
            assert known.speedup is not None
            again = divide(Estimate(**speedups["eager"]), known.speedup)
            assert again.value == pytest.approx(speedups[name]["value"])
            assert (again.low, again.high) == pytest.approx((speedups[name]["low"], speedups[name]["high"]), rel=0.02)
            compared += 1
    assert compared > 500
