"""Digests depend on what a program does, not on its layout. Records survive their storage formats."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from evaluators.records import (
    Candidate,
    ClockSample,
    Correctness,
    Estimate,
    Finding,
    KernelUse,
    Outcome,
    Task,
    Timing,
    Trace,
    Verdict,
    candidate_table,
    verdict_table,
)

SOURCE = "class ModelNew:\n    def forward(self, x):\n        return x + 1\n"


def digest(source: str, task: str = "level1/a") -> str:
    return Candidate.propose(task, source, "file").digest


@pytest.mark.parametrize(
    "same",
    [
        "# a comment\n" + SOURCE,
        '"""A docstring."""\n' + SOURCE,
        SOURCE.replace("    def", '    """About."""\n    def'),
        SOURCE.replace("(self, x):\n", '(self, x):\n        """Adds."""\n'),
        SOURCE.replace("x + 1", "(x  +  1)  # more"),
        SOURCE.replace("\n", "\n\n"),
        SOURCE.replace("\n", "\r\n"),
    ],
)
def test_layout_comments_and_docstrings_do_not_change_a_digest(same) -> None:
    assert digest(same) == digest(SOURCE)


@pytest.mark.parametrize(
    "other", [SOURCE.replace("1", "2"), SOURCE.replace("x + 1", "1 + x"), SOURCE + "y = 1\n", "def (", "", "def ( "[:5]]
)
def test_code_changes_a_digest(other) -> None:
    assert digest(other) != digest(SOURCE)
    assert digest(SOURCE, "level1/b") != digest(SOURCE)


@pytest.mark.parametrize("text", ["def (\0", "\ud800", "(" * 10000, "x" + ".a" * 20000, "-" * 20000 + "1"])
def test_any_text_has_a_digest(text) -> None:
    assert len(digest(text)) == 16


def test_sizes_are_part_of_a_task() -> None:
    task = Task("a", 1, "a", "n = 1\nm = 1\n")
    assert task.with_sizes(n=2).digest != task.digest
    assert task.with_sizes(n=2).with_sizes(m=3).digest == task.with_sizes(m=3).with_sizes(n=2).digest


def verdicts() -> list[Verdict]:
    estimate = Estimate(1.5, 1.4, 1.6, 12)
    timing = Timing(estimate, estimate, 12, "interval", 0.01)
    full = Verdict(
        "c" * 16,
        "level1/a",
        "cpu",
        Outcome.OK,
        "ä message",
        Correctness(14, 1e-7, 1e-5),
        {"eager": estimate, "torch_compile": Estimate(0.9, 0.8, 1.0, 10)},
        timing,
        (Finding("clocks", "hint", "no"),),
        {"preset": "fast"},
        {"total": 1.0},
    )
    return [full, Verdict("d" * 16, "level1/a", "cpu", Outcome.TIMEOUT)]


def test_verdicts_survive_parquet_and_json(tmp_path) -> None:
    pq.write_table(verdict_table(verdicts()), tmp_path / "verdicts.parquet")
    assert [Verdict.from_row(row) for row in pq.read_table(tmp_path / "verdicts.parquet").to_pylist()] == verdicts()
    assert [Verdict.from_row(json.loads(json.dumps(one.to_row()))) for one in verdicts()] == verdicts()


def test_candidates_survive_parquet(tmp_path) -> None:
    candidate = Candidate.propose("level1/a", SOURCE, "policy:3")
    pq.write_table(candidate_table([candidate]), tmp_path / "candidates.parquet")
    assert [Candidate(**row) for row in pq.read_table(tmp_path / "candidates.parquet").to_pylist()] == [candidate]


def test_the_best_baseline_is_the_one_with_the_lowest_speedup() -> None:
    assert verdicts()[0].best_baseline == "torch_compile"


def traced() -> Verdict:
    """A verdict of a GPU, with its clocks and the kernels that ran."""
    full = verdicts()[0]
    clocks = (ClockSample(0.5, 1980, 2619, 41, ""), ClockSample(0.75, 1755, 2619, 52, "power thermal"))
    kernels = (
        KernelUse("void scaled<float>(float*)", True, 7, 3, 4.5e-5),
        KernelUse("ampere_sgemm_128x64_tn", False, 13, 1, 1e-6),
    )
    return replace(
        full,
        arch="H200",
        correctness=replace(full.correctness, deterministic=False),
        timing=replace(full.timing, clocks=clocks),
        trace=Trace(kernels, 4.6e-5, 0.978, 2),
    )


@pytest.mark.parametrize(
    "verdict",
    [
        traced(),
        replace(traced(), trace=Trace((), 0.0, 0.0, 0)),
        replace(traced(), trace=None),
        replace(traced(), timing=None),
        replace(traced(), correctness=replace(traced().correctness, deterministic=True)),
        replace(traced(), correctness=replace(traced().correctness, deterministic=None)),
    ],
    ids=["all", "no kernels", "no trace", "no timing", "deterministic", "unknown determinism"],
)
def test_a_trace_and_clocks_survive_parquet_and_json(verdict, tmp_path) -> None:
    assert Verdict.from_row(verdict.to_row()) == verdict
    assert Verdict.from_row(json.loads(json.dumps(verdict.to_row()))) == verdict
    pq.write_table(verdict_table([verdict, *verdicts()]), tmp_path / "verdicts.parquet")
    rows = pq.read_table(tmp_path / "verdicts.parquet").to_pylist()
    assert [Verdict.from_row(row) for row in rows] == [verdict, *verdicts()]


def test_a_row_from_before_traces_is_read() -> None:
    row = json.loads(json.dumps(verdicts()[0].to_row()))
    del row["trace"]
    del row["timing"]["clocks"]
    del row["correctness"]["deterministic"]
    assert Verdict.from_row(row) == verdicts()[0]
