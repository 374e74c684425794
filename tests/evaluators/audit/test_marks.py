"""A list of marks names tasks by their text, whatever their ids, and says nothing about any other text."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluators.audit.marks import Mark, MarkError, marked_among, marks_of, read_marks, shipped_marks
from evaluators.audit.records import AuditFinding, FindingKind, TaskAudit, audit_table
from evaluators.records import Task
from evaluators.tasks import load_tasks

TASK = Task("level2/80", 2, "80", "def get_inputs():\n    return []\n")
FOUND = TaskAudit(
    "level2/80",
    TASK.text_digest,
    "80",
    (
        AuditFinding(FindingKind.TINY, "it hardly varies"),
        AuditFinding(FindingKind.COLLAPSIBLE, "all rows are the same"),
    ),
)
CLEAN = TaskAudit("level2/81", "0" * 16, "81")
FAILED = TaskAudit.failed(Task("level2/82", 2, "82", "x"), "no")


def test_the_shipped_list_is_well_formed_and_names_each_text_once() -> None:
    marks = shipped_marks()
    assert marks
    for mark in marks:
        assert re.fullmatch(r"[0-9a-f]{16}", mark.digest), mark
        assert re.fullmatch(r"level\d/\d+", mark.task), mark
        assert mark.kinds, mark
        assert len(set(mark.kinds)) == len(mark.kinds), mark
        assert mark.why.endswith("."), mark
        assert len(mark.why.splitlines()) == 1, mark
    assert len({mark.digest for mark in marks}) == len(marks)
    assert len({mark.task for mark in marks}) == len(marks)


def test_the_shipped_list_agrees_with_the_published_audit() -> None:
    audits = Path(__file__).parents[3] / "benchmarks/results/audit/kernelbench.parquet"
    found = {mark.digest: (mark.task, mark.kinds) for mark in read_marks(audits)}
    assert {mark.digest: (mark.task, mark.kinds) for mark in shipped_marks()} == found


def test_no_bundled_task_is_marked() -> None:
    for profile in ("source", "cpu", "cuda"):
        assert marked_among(load_tasks("bundled", profile), shipped_marks()) == {}


def test_only_an_audit_with_findings_gives_a_mark() -> None:
    (mark,) = marks_of([CLEAN, FOUND, FAILED])
    assert mark == Mark(
        TASK.text_digest,
        "level2/80",
        (FindingKind.TINY, FindingKind.COLLAPSIBLE),
        "it hardly varies; all rows are the same",
    )
    assert Mark.from_row(mark.to_row()) == mark


def test_a_text_is_marked_under_any_id_and_an_edited_text_is_not() -> None:
    marks = marks_of([FOUND])
    moved = Task("mine/1", 0, "mine", TASK.source)
    edited = Task(TASK.id, 2, "80", TASK.source.replace("[]", "[1]"))
    assert list(marked_among([TASK, moved], marks)) == ["level2/80", "mine/1"]
    assert marked_among([edited], marks) == {}


def test_the_later_of_two_marks_counts() -> None:
    later = Mark(TASK.text_digest, "x", (FindingKind.CONSTANT,), "zero")
    assert marked_among([TASK], [*marks_of([FOUND]), later])[TASK.id] is later


def test_marks_are_read_from_an_audits_file(tmp_path: Path) -> None:
    pq.write_table(audit_table([CLEAN, FOUND, FAILED]), tmp_path / "audits.parquet")
    assert read_marks(tmp_path / "audits.parquet") == marks_of([FOUND])


def test_another_file_is_refused_in_one_line(tmp_path: Path) -> None:
    older = tmp_path / "older.parquet"
    pq.write_table(audit_table([FOUND]).drop_columns(["draws"]), older)
    other, text = tmp_path / "other.parquet", tmp_path / "text.parquet"
    pq.write_table(pa.table({"x": [1]}), other)
    text.write_text("no table")
    for path in (older, other, text, tmp_path / "absent.parquet"):
        with pytest.raises(MarkError, match="warpsmith audit") as refused:
            read_marks(path)
        assert len(str(refused.value).splitlines()) == 1
        assert path.name in str(refused.value)
