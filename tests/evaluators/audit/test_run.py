"""Audits of many tasks: a task that hangs, crashes or asks for too much does not stop the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.audit.records import AuditFinding, FindingKind, TaskAudit
from evaluators.audit.run import audit_tasks, read_audits, summarise_audits, write_audits
from evaluators.audit.sizes import audited_sizes
from evaluators.records import Task


def task_of(
    name: str, forward: str, top: str = "n = 4", inputs: str = "[torch.randn(n, 6)]", init: str = "pass"
) -> Task:
    source = f"""import os, time
import torch
import torch.nn as nn
{top}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        {forward}
def get_inputs():
    return {inputs}
def get_init_inputs():
    return []
"""
    return Task(f"test/{name}", 1, name, source)


GOOD = task_of("good", "print('hello'); return torch.tanh(x)")
CONSTANT = task_of("constant", "return x * 0")


@pytest.mark.slow
def test_a_bad_task_does_not_stop_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    tasks = [
        task_of("crashes", "os.abort()"),
        task_of("large", "return torch.tanh(torch.ones(1 << 30) + x[0, 0])"),
        task_of("raises", "raise SystemExit(3)"),
        CONSTANT,
        GOOD,
    ]
    audits = list(audit_tasks(tasks, jobs=2, memory_bytes=2 << 30))
    assert [audit.task for audit in audits] == [task.id for task in tasks]
    assert [audit.digest for audit in audits] == [task.text_digest for task in tasks]
    crashes, large, raises, constant, good = audits
    assert "exit code -6" in crashes.failure
    assert "memory" in large.failure
    assert raises.failure
    assert constant.kinds == (FindingKind.CONSTANT,)
    assert good.is_clean
    assert capfd.readouterr() == ("", "")


def test_a_task_that_hangs_does_not_stop_the_others() -> None:
    hangs = task_of("hangs", "time.sleep(3600); return x")
    for audit in audit_tasks([hangs, hangs], jobs=1, seconds=1.0):
        assert audit.failure == "not done within 1 s"


def test_audits_are_written_and_read(tmp_path: Path) -> None:
    audits = list(audit_tasks([CONSTANT, GOOD]))
    write_audits(audits, tmp_path / "audits.parquet")
    assert read_audits(tmp_path / "audits.parquet") == audits
    assert [path.name for path in tmp_path.iterdir()] == ["audits.parquet"]


def test_jobs_must_be_positive() -> None:
    with pytest.raises(ValueError, match="--jobs must be at least 1, got 0"):
        audit_tasks([GOOD], jobs=0)


def test_the_summary_counts_kinds_and_failures() -> None:
    audits = [
        TaskAudit("a", "1", "a", (AuditFinding(FindingKind.TINY, "x"), AuditFinding(FindingKind.COLLAPSIBLE, "y"))),
        TaskAudit("b", "2", "b", (AuditFinding(FindingKind.COLLAPSIBLE, "z"),)),
        TaskAudit("c", "3", "c"),
        TaskAudit.failed(GOOD, "no"),
    ]
    assert summarise_audits(audits) == "4 tasks: 2 marked (1 tiny, 2 collapsible), 1 not audited"
    assert summarise_audits(audits[2:3]) == "1 tasks: 0 marked, 0 not audited"


# Sizes


def test_small_tasks_keep_their_sizes() -> None:
    assert audited_sizes(GOOD) == ({}, {})


def test_the_largest_size_is_halved_until_the_inputs_are_small() -> None:
    task = task_of("wide", "return x", "n, m = 64, 1 << 20\nk = 1048576", "[torch.randn(n, k)]")
    sizes, larger = audited_sizes(task)
    assert sizes == {"k": 2**14}
    assert larger == {"k": 2**15}


def test_sizes_that_the_model_depends_on_stay_and_none_falls_below_two() -> None:
    top, init = "batch = 5\nwidth = 1 << 22", "self.scale = nn.Parameter(torch.ones(width))"
    literal = task_of(
        "deep", "return x * self.scale", top.replace("1 << 22", "4194304"), "[torch.randn(batch, width)]", init
    )
    assert audited_sizes(literal) == ({"batch": 2}, {})


def test_a_size_at_which_the_program_fails_is_left_alone() -> None:
    task = task_of("fixed", "return x.view(-1, 4096)", "n = 64\nk = 262144", "[torch.randn(n, k).view(n, 64, 4096)]")
    assert audited_sizes(task)[0] == {"n": 16}


def test_work_counts_as_well_as_inputs() -> None:
    task = task_of("work", "return x @ x.T @ x", "n = 16384", "[torch.randn(n, 6)]")
    sizes, _ = audited_sizes(task)
    assert sizes == {"n": 4096}


def test_small_sizes_are_halved_only_if_a_call_is_much_too_large() -> None:
    top, inputs = "n = 16", "[torch.randn(n, 131072)]"
    assert audited_sizes(task_of("small", "return x", top, inputs)) == ({}, {})
    assert audited_sizes(task_of("large", "return x", top, inputs.replace("131072", "524288")))[0] == {"n": 8}


def test_a_long_sequence_of_operations_is_cut_short() -> None:
    body = "for step in range(x.shape[0]): x = torch.tanh(x)"
    task = task_of("recurrent", f"{body}\n        return x", "n = 16384", "[torch.randn(n, 2)]")
    assert audited_sizes(task)[0] == {"n": 2048}
