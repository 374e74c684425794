"""What a test of real verdicts says of an honest program, on an idle machine and on a busy one."""

from __future__ import annotations

from evaluators.records import Estimate, Outcome, Verdict
from tests.evaluators.patience import patience, stalled

BUSY = 1.3  # times as long as on an idle machine
STALLED = 0.3  # of the last ten seconds; these tests alone cause less than a tenth
OF_TIMES = {"bursts", "clocks", "neighbours", "variance"}
"""The findings that other load on the machine may cause, in a program that it disturbs more than the reference."""


def is_busy() -> bool:
    """Whether other load takes the machine's cores now, or did just now."""
    return stalled() > STALLED or patience() > BUSY


def assert_ok(verdict: Verdict) -> None:
    """The program is `ok`. If the machine is busy, or was just now, its times may be doubted, and nothing else."""
    if verdict.outcome is Outcome.SUSPECT:
        doubts = {finding.kind for finding in verdict.guard if finding.severity != "hint"}
        assert doubts <= OF_TIMES, verdict.guard
        assert is_busy(), verdict.guard
    else:
        assert verdict.outcome is Outcome.OK, verdict.message


def speedup_of(verdict: Verdict) -> Estimate:
    """The speed-up over eager of a program that is ok, or would be but for its times."""
    return (verdict.speedups or verdict.doubted)["eager"]
