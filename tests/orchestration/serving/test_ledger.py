"""Counts over a large ledger are cheap, and keep nobody waiting."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from evaluators.records import Candidate, Outcome
from orchestration.serving.ledger import _JUDGED, _OUTCOMES, Ledger
from orchestration.serving.records import Request, as_json
from tests.orchestration.serving.served import SOFTMAX, program, verdict_on


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """With two verdicts, and a request without one."""
    ledger = Ledger(tmp_path / "requests.sqlite")
    for number, outcome in enumerate((Outcome.OK, Outcome.WRONG, None)):
        candidate = Candidate.propose(SOFTMAX.id, program(number), "client:anna")
        request = Request(str(number), SOFTMAX, candidate, "anna", 0)
        ledger.accept(request, number, "settings").result()
        if outcome is not None:
            verdict = verdict_on(request, outcome)
            ledger.settle(request.id, verdict, as_json(verdict)).result()
    yield ledger
    ledger.close()


def test_counts_read_an_index_and_neither_programs_nor_verdicts(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger.outcomes() == {"": 1, "ok": 1, "wrong": 1}
    assert ledger.judged() == {0: 1, 1: 2}
    with closing(sqlite3.connect(tmp_path / "requests.sqlite")) as database:
        plans = [database.execute(f"EXPLAIN QUERY PLAN {count}").fetchall() for count in (_OUTCOMES, _JUDGED)]
    assert ["USING COVERING INDEX" in plan[0][-1] for plan in plans] == [True, True]


def test_a_count_waits_for_no_reader_and_none_for_it(ledger: Ledger) -> None:
    counts: list[dict[str, int]] = []
    with ledger._reading:
        thread = threading.Thread(target=lambda: counts.append(ledger.outcomes()), daemon=True)
        thread.start()
        thread.join(10)
        assert counts == [{"": 1, "ok": 1, "wrong": 1}]
