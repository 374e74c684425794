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
        assert_doubted(verdict)
    else:
        assert verdict.outcome is Outcome.OK, verdict.message


def assert_doubted(verdict: Verdict, *kinds: str) -> None:
    """The program is suspect for findings of these kinds. If the machine is busy, or was just now, its times may be
    doubted, too, and nothing else."""
    assert verdict.outcome is Outcome.SUSPECT, verdict.message
    found = {finding.kind for finding in verdict.deciding}
    assert found >= set(kinds), verdict.guard
    if further := found - set(kinds):
        assert further <= OF_TIMES, verdict.guard
        assert is_busy(), verdict.guard


def speedup_of(verdict: Verdict) -> Estimate:
    """The speed-up over eager of a program that is ok, or would be but for its times."""
    return (verdict.speedups or verdict.doubted)["eager"]
