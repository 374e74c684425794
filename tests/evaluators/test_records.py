"""Digests depend on a program's text, except for comments and layout. Records survive their storage formats."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from evaluators.records import (
    VERDICT_SCHEMA,
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


DOCUMENTED = """'about the module'
class ModelNew:
    'about the class'
    def forward(self, x):
        'about the method'
        return x + 1
"""


@pytest.mark.parametrize("source", [SOURCE, DOCUMENTED], ids=["plain", "documented"])
@pytest.mark.parametrize(
    "changed",
    [
        lambda source: "# a comment\n" + source,
        lambda source: source.replace("x + 1", "(x  +  1)  # more"),
        lambda source: source.replace("\n", "\n\n"),
        lambda source: source.replace("\n", "\r\n"),
        lambda source: source.replace("'", '"""'),
    ],
    ids=["comment", "brackets", "blank lines", "line ends", "quotes"],
)
def test_layout_and_comments_do_not_change_a_digest(source, changed) -> None:
    assert digest(changed(source)) == digest(source)


@pytest.mark.parametrize(
    "other",
    [
        *(SOURCE.replace("1", number) for number in ("2", "1.0", "True", "1j", "'1'", "b'1'", "-1", "0x" + "f" * 9000)),
        SOURCE.replace("x + 1", "1 + x"),
        SOURCE + "y = 1\n",
        "def (",
        "",
        "def ( "[:5],
        *(DOCUMENTED.replace(f"about the {place}", "another") for place in ("module", "class", "method")),
        *(DOCUMENTED.replace(f"    'about the {place}'\n", "") for place in ("class", "method")),
    ],
)
def test_code_and_docstrings_change_a_digest(other) -> None:
    assert digest(other) not in {digest(SOURCE), digest(DOCUMENTED)}
    assert digest(other, "level1/b") != digest(other)


@pytest.mark.parametrize(
    "text", ["def (\0", "\ud800", "(" * 10000, "x" + ".a" * 20000, "-" * 20000 + "1", "x = " + "1 + " * 900 + "1"]
)
def test_any_text_has_a_digest(text) -> None:
    assert len(digest(text)) == 16


@pytest.mark.parametrize("depth", range(100, 1000, 50))
def test_a_digest_is_the_same_at_any_depth_of_the_stack(depth: int) -> None:
    """The driver and the evaluators each compute it."""
    source = "x = " + "- " * depth + "1"

    def below(frames: int) -> str:
        return below(frames - 1) if frames else digest(source)

    assert below(300) == digest(source)


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
        strict="values",
        measurements=(Estimate(1.7, 1.5, 1.9, 12), estimate),
    )
    return [full, Verdict("d" * 16, "level1/a", "cpu", Outcome.TIMEOUT)]


def test_verdicts_survive_parquet_and_json(tmp_path) -> None:
    pq.write_table(verdict_table(verdicts()), tmp_path / "verdicts.parquet")
    assert [Verdict.from_row(row) for row in pq.read_table(tmp_path / "verdicts.parquet").to_pylist()] == verdicts()
    assert [Verdict.from_row(json.loads(json.dumps(one.to_row()))) for one in verdicts()] == verdicts()


def test_verdicts_of_files_older_than_strictness_are_of_drop_in_replacements(tmp_path) -> None:
    pq.write_table(verdict_table(verdicts()).drop_columns("strict"), tmp_path / "verdicts.parquet")
    rows = pq.read_table(tmp_path / "verdicts.parquet", schema=VERDICT_SCHEMA).to_pylist()
    assert [Verdict.from_row(row).strict for row in rows] == ["drop_in", "drop_in"]


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
