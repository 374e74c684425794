"""What audits of tasks say, and how it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from evaluators.records import Task


class FindingKind(StrEnum):
    """What a task fails to tell from a good program. `CONSTANT`: a stored output. `INPUT_INDEPENDENT`,
    `WEIGHT_INDEPENDENT`: one that ignores its inputs, or its weights. `TINY`: one within the tolerance of all outputs.
    `COLLAPSIBLE`: one that does a small part of the work, which nothing but the task's algebra allows."""

    CONSTANT = "constant"
    INPUT_INDEPENDENT = "input_independent"
    WEIGHT_INDEPENDENT = "weight_independent"
    TINY = "tiny"
    COLLAPSIBLE = "collapsible"


@dataclass(frozen=True)
class AuditFinding:
    """One reason to leave a task out, in a sentence with the figure that was measured."""

    kind: FindingKind
    message: str


@dataclass(frozen=True)
class TaskAudit:
    """What an audit found out about a task. `digest` names the task's text, so that an edited task is another one;
    `draws` says in how many draws of inputs and weights the findings stand. `sizes` holds the sizes that were reduced
    for it, `failure` why there is no audit (empty where there is one), `seconds` what it took."""

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
        return tuple(dict.fromkeys(one.kind for one in self.findings))

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
        findings = tuple(AuditFinding(FindingKind(one["kind"]), one["message"]) for one in row["findings"])
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


def common_findings(one: Sequence[AuditFinding], other: Sequence[AuditFinding]) -> tuple[AuditFinding, ...]:
    """What two audits of a task agree on: a constant output has every other fault, too."""
    return (*_also_in(one, other), *(some for some in _also_in(other, one) if some.kind not in _kinds(one)))


def _also_in(findings: Sequence[AuditFinding], others: Sequence[AuditFinding]) -> list[AuditFinding]:
    kinds = _kinds(others)
    return [one for one in findings if one.kind in kinds or FindingKind.CONSTANT in kinds]


def _kinds(findings: Iterable[AuditFinding]) -> set[FindingKind]:
    return {one.kind for one in findings}
