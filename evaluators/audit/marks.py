"""Lists of tasks that audits marked: the list that ships with the project, and a user's own.

A mark names a task by the digest of its text. So a list holds no part of the tasks themselves, and a mark does not
count for a task that was edited later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from evaluators.audit.records import AUDIT_SCHEMA, FindingKind, TaskAudit
from evaluators.records import BLIND_TASK, HINT, Finding, Task

SHIPPED = Path(__file__).parents[1] / "tasks" / "marked.yaml"


class MarkError(ValueError):
    """A list of marks that cannot be read. The message is one line that names the list and the remedy."""


@dataclass(frozen=True)
class Mark:
    """Why a task is left out. `digest` is of its text (`Task.text_digest`), `task` the id under which it was audited,
    `kinds` are the kinds of the findings, `why` says them in words."""

    digest: str
    task: str
    kinds: tuple[FindingKind, ...]
    why: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Mark:
        """The inverse of `to_row`. Raises KeyError, TypeError or ValueError if the row is not a mark."""
        if not all(isinstance(row[name], str) and row[name] for name in ("digest", "task", "why")) or not row["kinds"]:
            raise ValueError("digest, task, kinds and why must not be empty")
        return cls(row["digest"], row["task"], tuple(map(FindingKind, row["kinds"])), row["why"])

    def to_row(self) -> dict[str, Any]:
        """The mark as plain values."""
        return {**asdict(self), "kinds": [str(kind) for kind in self.kinds]}


def marks_of(audits: Iterable[TaskAudit]) -> list[Mark]:
    """The marks of the audits that have findings."""
    return [
        Mark(audit.digest, audit.task, audit.kinds, "; ".join(finding.message for finding in audit.findings))
        for audit in audits
        if audit.findings
    ]


def shipped_marks() -> list[Mark]:
    """The project's own list."""
    return [Mark.from_row(row) for row in yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))]


def read_marks(path: Path) -> list[Mark]:
    """The marks in a file that `warpsmith audit --output` wrote. Raises MarkError."""
    try:
        table = pq.read_table(path)
        if missing := set(AUDIT_SCHEMA.names) - set(table.column_names):
            raise ValueError(f"without {sorted(missing)[0]}")
        return marks_of(TaskAudit.from_row(row) for row in table.to_pylist())
    except (OSError, pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise MarkError(f"{path}: not what `warpsmith audit TASKS --output` writes ({reason}); audit again") from error


def blind_task(mark: Mark) -> Finding:
    """The hint on a verdict whose task is marked: its speed-up may be a cheat's."""
    kinds = ", ".join(mark.kinds)
    return Finding(BLIND_TASK, HINT, f"the task cannot tell a good program from a cheat ({kinds}): {mark.why}")


def marked_among(tasks: Iterable[Task], marks: Sequence[Mark]) -> dict[str, Mark]:
    """The mark of every task whose text is marked, by the task's id. If a text is marked twice, the later mark
    counts."""
    by_digest = {mark.digest: mark for mark in marks}
    return {task.id: by_digest[digest] for task in tasks if (digest := task.text_digest) in by_digest}
