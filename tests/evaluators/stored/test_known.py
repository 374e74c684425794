"""Verdicts that are forgotten in memory are found on disk, and no program is judged for want of memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from evaluators.evaluator import Evaluator
from evaluators.records import Estimate, Outcome, Task, Verdict, verdict_table
from evaluators.stored.known import Key, KnownVerdicts
from evaluators.stored.verdicts import REUSED_FROM, ReusableVerdicts

ABOUT = {"arch": "cpu", "torch": "2.11"}
MOST = 8


def verdict_of(number: int, **changes: Any) -> Verdict:
    settings = {**ABOUT, "preset": "fast", "task_digest": "t"}
    speedups = {"eager": Estimate(1.0 + number, 1.0, 2.0 + number, 9)}
    made = Verdict(f"c{number}", "level1/a", "cpu", Outcome.OK, "said", speedups=speedups, evaluator=settings)
    return replace(made, **changes)


def key_of(number: int) -> Key:
    return "t", f"c{number}", "fast", "drop_in"


def test_so_many_are_in_memory_and_all_are_known() -> None:
    known = KnownVerdicts(most_in_memory=MOST)
    for number in range(300):
        known.put(key_of(number), verdict_of(number))
        assert known.in_memory <= MOST
    for number in range(300):
        assert known.get(key_of(number)) == verdict_of(number)
        assert known.in_memory <= MOST
    assert known.get(key_of(300)) is None


def test_what_is_stored_elsewhere_is_read_there_once_while_it_is_recent() -> None:
    read: list[tuple[str, Key]] = []

    def reading(place: str, key: Key) -> Verdict:
        read.append((place, key))
        return verdict_of(int(place))

    known = KnownVerdicts(reading, MOST)
    known.note((key_of(number), str(number)) for number in range(1000))
    assert (known.in_memory, read) == (0, [])
    assert known.get(key_of(7)) == known.get(key_of(7)) == verdict_of(7)
    assert read == [("7", key_of(7))]
    for number in range(100, 100 + MOST):
        known.get(key_of(number))
    assert known.get(key_of(7)) == verdict_of(7)
    assert len(read) == MOST + 2, "it was forgotten, and is read again"


def test_what_is_put_counts_more_than_what_was_stored_before_also_when_it_is_forgotten() -> None:
    known = KnownVerdicts(lambda place, _: verdict_of(int(place)), MOST)
    known.note([(key_of(0), "0")])
    known.put(key_of(0), verdict_of(5))
    for number in range(1, 3 * MOST):
        known.put(key_of(number), verdict_of(number))
    assert known.get(key_of(0)) == verdict_of(5)
    known.note([(key_of(0), "0")])
    for number in range(1, 3 * MOST):
        known.get(key_of(number))
    assert known.get(key_of(0)) == verdict_of(0), "it was stored again"


def test_of_an_earlier_run_only_the_verdict_that_is_asked_for_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "earlier").mkdir()
    verdicts = [verdict_of(number % 40) for number in range(80)]  # the first rows on a program are older
    verdicts[:40] = [replace(one, speedups={"eager": Estimate(9.0, 8.0, 10.0, 9)}) for one in verdicts[:40]]
    pq.write_table(verdict_table(verdicts), tmp_path / "earlier" / "verdicts.parquet", row_group_size=10)
    read: list[tuple[list[int], int]] = []
    batches = pq.ParquetFile.iter_batches

    def reading(self: Any, rows: int, groups: list[int], columns: list[str]) -> Any:
        read.append((groups, len(columns)))
        return batches(self, rows, groups, columns)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", reading)
    known = ReusableVerdicts([str(tmp_path / "earlier")], ABOUT, ("eager",)).known()
    assert known.in_memory == 0
    assert read == [([group], 5) for group in range(8)], "the columns that decide which of them there are"
    read.clear()
    verdict = known.get(key_of(13))
    assert verdict == verdict_of(13, evaluator={**verdict_of(13).evaluator, REUSED_FROM: "earlier"})
    assert read == [([5], len(verdict_table([]).schema))]
    assert known.get(key_of(40)) is None
    assert len(read) == 1, "no file is read for a program that none of them holds"


def test_an_evaluator_judges_no_program_twice_that_it_forgot(monkeypatch: pytest.MonkeyPatch) -> None:
    task, judged = Task("test/a", 1, "a", "class Model: pass"), list[str]()

    def judge(self: Evaluator, task: Task, candidate: Any, *_: Any, **__: Any) -> Verdict:
        judged.append(candidate.source)
        return verdict_of(len(judged), candidate=candidate.digest)

    monkeypatch.setattr(Evaluator, "_evaluate", judge)
    sources = [f"x = {number}" for number in range(9)]
    with Evaluator("cpu") as evaluator:
        evaluator._verdicts._most = 2
        first = [evaluator.evaluate(task, source) for source in sources]
        assert evaluator._verdicts.in_memory == 2
        assert [evaluator.evaluate(task, source) for source in sources] == first
        assert judged == sources
        again = evaluator.evaluate(task, sources[0], again=True)
        assert again != first[0]
        assert [evaluator.evaluate(task, source) for source in sources] == [again, *first[1:]]
