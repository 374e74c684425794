"""Threads and processes that a program leaves beside itself."""

from __future__ import annotations

from collections.abc import Iterable

from evaluators.guard.evidence import Evidence
from evaluators.records import Finding

_THREADS = 4  # more than the reference has: compiled programs have pools of threads
_BESIDE = 0.02  # seconds of CPU time in all: stopping a program takes a moment
_WAITED = 0.05  # a share of the reference's bursts, beyond the candidate's share: other load makes both wait
_SECONDS = 0.05  # of CPU time: what starting a process takes by itself


class NothingRunsBeside:
    """Against work while the reference is measured, and against processes that slow the reference. The kernel's own
    counts show both.

    Other load on the host makes the reference wait, too, and a faster program waits less. So waiting counts only if
    the program left processes. Work that the program gives to other processes is only a hint: these are stopped
    together with the program and share its cores, so that other evidence would show a gain."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        if evidence.beside_seconds > _BESIDE:
            message = f"it worked for {1e3 * evidence.beside_seconds:.0f} ms while it was stopped"
            yield Finding("neighbours", "suspect", f"{message} and the reference was measured")
        elif evidence.waited.low > _WAITED and evidence.candidate.children > evidence.reference.children:
            message = (
                f"the reference waited for its core for {evidence.waited.value:.0%} of its time more than the program"
            )
            yield Finding("neighbours", "suspect", f"{message}, which keeps {evidence.candidate.children} processes")
        more = evidence.candidate.threads - evidence.reference.threads
        if more > _THREADS:
            yield Finding("census", "hint", f"it keeps {more} threads more than the reference")
        children = evidence.candidate.children
        if children > evidence.reference.children and evidence.candidate.children_seconds > _SECONDS:
            seconds = evidence.candidate.children_seconds
            message = f"it keeps {children} other processes, which have worked for {seconds:.1f} s"
            yield Finding("census", "hint", message)
