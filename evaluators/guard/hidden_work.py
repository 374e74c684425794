"""The work that a GPU was seen to do in one call must fit into the seconds that the call is said to take."""

from __future__ import annotations

from collections.abc import Iterable

from evaluators.guard.evidence import Evidence
from evaluators.records import Finding, Trace

_BUSY_FACTOR, _BUSY_SECONDS = 1.25, 5e-6  # a trace is of one call, and has a clock of its own
_OUTSIDE_SHARE, _OUTSIDE_SECONDS = 0.05, 2e-6  # kernels that overlap by design overlap by less


class NothingIsHidden:
    """Against work on streams that the call's clock does not wait for."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        if evidence.trace is not None:
            finding = hidden_work(evidence.trace, evidence.timing.candidate_seconds.value)
            if finding is not None:
                yield finding


def hidden_work(trace: Trace, candidate_seconds: float) -> Finding | None:
    """A finding if the call worked before its time began or after it ended. Either its trace shows that, or its kernels
    take longer than `candidate_seconds`, the time that the call is said to take."""
    outside = trace.outside_seconds
    if outside > _OUTSIDE_SHARE * trace.gpu_seconds + _OUTSIDE_SECONDS:
        message = f"its kernels ran for {1e6 * outside:.0f} µs before the call's time began or after it ended"
        return Finding("hidden_work", "suspect", f"{message}, of {1e6 * trace.gpu_seconds:.0f} µs in all")
    if trace.gpu_seconds <= _BUSY_FACTOR * candidate_seconds + _BUSY_SECONDS:
        return None
    message = f"its kernels take {1e6 * trace.gpu_seconds:.0f} µs, a call only {1e6 * candidate_seconds:.0f} µs"
    return Finding("hidden_work", "suspect", f"{message}, on {trace.streams} streams")
