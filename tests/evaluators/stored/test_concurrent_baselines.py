"""Processes that measure the same baselines at the same time leave one whole row each, and lose none of the others."""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest

from configs.schema import LimitsConfig
from evaluators.evaluator import Evaluator
from evaluators.records import Estimate
from evaluators.stored.baselines import BaselineResult, BaselineStore
from tests.evaluators.sources import DOUBLE
from tests.evaluators.stored.test_baselines import REFUSING
from tests.processes import forks

NAME, ROUNDS = "torch_compile", 100
VERSIONS = {"torch": "2", "padding": "x" * 5000}  # so that a row takes a moment to write
OTHERS = [DOUBLE.with_sizes(n=number) for number in range(8)]


def result_of(number: int) -> BaselineResult:
    """Equal numbers throughout, so that a mixture of two rows would show."""
    return BaselineResult(Estimate(number, number, number, number), "y" * number, float(number))


def is_whole(result: BaselineResult | None) -> bool:
    return result is not None and result == result_of(len(result.reason))


def _write(folder: Path, writer: int, start: Any, results: Any) -> None:
    store = BaselineStore(folder)
    store.put(OTHERS[writer], NAME, VERSIONS, result_of(writer))
    start.wait()
    torn = 0
    for number in range(ROUNDS):
        store.put(DOUBLE, NAME, VERSIONS, result_of(1 + (number + writer) % 100))
        torn += not is_whole(store.get(DOUBLE, NAME, VERSIONS))
    results.put(torn)


def test_writers_of_one_baseline_leave_one_whole_row_and_those_of_others(tmp_path) -> None:
    context = forks()
    start, results = context.Barrier(4), context.Queue()
    writers = [context.Process(target=_write, args=(tmp_path, writer, start, results)) for writer in range(4)]
    for process in writers:
        process.start()
    for process in writers:
        process.join(300)
        assert process.exitcode == 0
    assert sum(results.get() for _ in writers) == 0
    store = BaselineStore(tmp_path)
    assert is_whole(store.get(DOUBLE, NAME, VERSIONS))
    assert [store.get(OTHERS[writer], NAME, VERSIONS) for writer in range(4)] == [result_of(n) for n in range(4)]
    rows = list(store.folder.iterdir())
    assert len(rows) == 5
    assert all(json.loads(path.read_text())["baseline"] == NAME for path in rows)


def _measure_by_turns(folder: Path, start: Any, results: Any) -> None:
    store = BaselineStore(folder)
    start.wait()
    with store.measuring(DOUBLE, NAME, VERSIONS, 60.0):
        before = store.get(DOUBLE, NAME, VERSIONS)
        if before is None:
            time.sleep(0.5)
            store.put(DOUBLE, NAME, VERSIONS, result_of(7))
    results.put(before)


def test_a_baseline_is_measured_once_while_others_wait_for_it(tmp_path) -> None:
    context = forks()
    start, results = context.Barrier(3), context.Queue()
    processes = [context.Process(target=_measure_by_turns, args=(tmp_path, start, results)) for _ in range(3)]
    for process in processes:
        process.start()
    found = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    assert found.count(None) == 1
    assert found.count(result_of(7)) == 2


def _evaluate(folder: Path, limits: LimitsConfig, start: Any, results: Any) -> None:
    with Evaluator(arch="cpu", limits=limits, store=folder, baselines=("eager", NAME)) as evaluator:
        evaluator.start()
        measured = 0
        measure = evaluator._baselines._measure

        def count(*arguments: Any) -> Any:
            nonlocal measured
            measured += 1
            return measure(*arguments)

        evaluator._baselines._measure = count  # type: ignore[method-assign]
        start.wait()
        result = evaluator.baseline(REFUSING, NAME)
        results.put((measured, result.reason))


@pytest.mark.slow
def test_evaluators_that_need_the_same_baseline_measure_it_once(tmp_path, limits) -> None:
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_evaluate, args=(tmp_path, limits, start, results)) for _ in range(2)]
    for process in processes:
        process.start()
    found = [results.get(timeout=240) for _ in processes]
    for process in processes:
        process.join()
    assert sum(measured for measured, _ in found) == 1
    assert {reason for _, reason in found} == {found[0][1]}
    assert "not this one" in found[0][1]
    assert len(list((tmp_path / "baselines").iterdir())) == 1


def test_a_damaged_row_is_measured_again_and_the_log_says_so(tmp_path, caplog) -> None:
    store = BaselineStore(tmp_path)
    store.put(DOUBLE, NAME, VERSIONS, result_of(3))
    [path] = store.folder.iterdir()
    for damage in ("", path.read_text()[:40], "[]", "{}", '{"speedup": {"v": 1}, "reason": ""}'):
        path.write_text(damage)
        caplog.clear()
        assert store.get(DOUBLE, NAME, VERSIONS) is None
        assert "is damaged" in caplog.text
    store.put(DOUBLE, NAME, VERSIONS, result_of(3))
    assert store.get(DOUBLE, NAME, VERSIONS) == result_of(3)
