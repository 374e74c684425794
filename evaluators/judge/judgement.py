"""The record that the judge makes of one candidate, before the task, the preset and the baselines make it a verdict."""

from __future__ import annotations

from dataclasses import dataclass, field

from evaluators.records import HINT, Correctness, Estimate, Finding, Outcome, Timing, Trace
from evaluators.syntax import why_not_python


@dataclass(frozen=True)
class Judgement:
    """The judge's results on one candidate.

    `speedup` is over eager. `cost`: seconds by stage. `containment`: the means of the sandbox that were active in the
    candidate's process.
    """

    outcome: Outcome
    message: str
    correctness: Correctness | None = None
    speedup: Estimate | None = None
    timing: Timing | None = None
    findings: tuple[Finding, ...] = ()
    trace: Trace | None = None
    cost: dict[str, float] = field(default_factory=dict)
    containment: tuple[str, ...] = ()

    @property
    def doubts(self) -> tuple[Finding, ...]:
        """The findings that are more than hints."""
        return tuple(finding for finding in self.findings if finding.severity != HINT)


def judge_text(source: str) -> Judgement | None:
    """The judgement of a text that is not Python; None for Python."""
    reason = why_not_python(source)
    return None if reason is None else Judgement(Outcome.BUILD_ERROR, f"does not parse: {reason}")
