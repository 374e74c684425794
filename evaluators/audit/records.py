"""The results of audits, and how they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from evaluators.records import Task


class FindingKind(StrEnum):
    """The cheat that a task cannot tell from a good program. `CONSTANT`: a program that returns a stored output.
    `INPUT_INDEPENDENT`, `WEIGHT_INDEPENDENT`: a program that ignores its inputs, or its weights. `TINY`: a program
    whose output is within the tolerance of all outputs. `COLLAPSIBLE`: a program that does a small part of the work,
    which only the task's algebra allows."""

    CONSTANT = "constant"
    INPUT_INDEPENDENT = "input_independent"
    WEIGHT_INDEPENDENT = "weight_independent"
    TINY = "tiny"
    COLLAPSIBLE = "collapsible"


@dataclass(frozen=True)
class AuditFinding:
    """One reason to leave a task out: a sentence with the measured figure."""

    kind: FindingKind
    message: str


@dataclass(frozen=True)
class TaskAudit:
    """The audit of a task. `digest` names the task's text, so that an edited task is another one. `draws` is the number
    of draws of inputs and weights that have all the findings. `sizes` holds the sizes that were reduced for the audit,
    `failure` says why there is no audit (empty if there is one), `seconds` is the time that it took."""

    task: str
    digest: str
    name: str
    findings: tuple[AuditFinding, ...] = ()
    failure: str = ""
    draws: int = 1
    sizes: Mapping[str, int] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)

    @property
    def kinds(self) -> tuple[FindingKind, ...]:
        """The kinds of the findings, each once."""
        return tuple(dict.fromkeys(finding.kind for finding in self.findings))

    @property
    def is_clean(self) -> bool:
        """Whether the audit was done and found nothing."""
        return not self.findings and not self.failure

    @classmethod
    def failed(cls, task: Task, reason: str, seconds: float = 0.0) -> TaskAudit:
        """The audit of a task whose reference cannot be run."""
        return cls(task.id, task.text_digest, task.name, failure=" ".join(reason.split()), seconds=seconds)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> TaskAudit:
        """The inverse of a row of `audit_table`."""
        findings = tuple(AuditFinding(FindingKind(each["kind"]), each["message"]) for each in row["findings"])
        return cls(**{**row, "findings": findings, "sizes": dict(row["sizes"])})


AUDIT_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("task", "digest", "name")),
        ("findings", pa.list_(pa.struct([("kind", pa.string()), ("message", pa.string())]))),
        ("failure", pa.string()),
        ("draws", pa.int64()),
        ("sizes", pa.map_(pa.string(), pa.int64())),
        ("seconds", pa.float64()),
    ]
)


def audit_table(audits: Iterable[TaskAudit]) -> pa.Table:
    """Audits as an Arrow table of `AUDIT_SCHEMA`."""
    return pa.Table.from_pylist([asdict(audit) for audit in audits], schema=AUDIT_SCHEMA)


def common_findings(first: Sequence[AuditFinding], second: Sequence[AuditFinding]) -> tuple[AuditFinding, ...]:
    """The findings on which two audits of a task agree. A constant output has every other fault, too."""
    missing = [finding for finding in _also_in(second, first) if finding.kind not in _kinds(first)]
    return (*_also_in(first, second), *missing)


def _also_in(findings: Sequence[AuditFinding], others: Sequence[AuditFinding]) -> list[AuditFinding]:
    kinds = _kinds(others)
    return [finding for finding in findings if finding.kind in kinds or FindingKind.CONSTANT in kinds]


def _kinds(findings: Iterable[AuditFinding]) -> set[FindingKind]:
    return {finding.kind for finding in findings}
