"""Who else was there: threads and processes that a program left beside itself."""

from __future__ import annotations

from collections.abc import Iterable

from evaluators.guard.evidence import Evidence
from evaluators.records import Finding

_THREADS = 4  # more than the reference has: pools of compiled programs
_BESIDE = 0.02  # seconds of CPU time in all: stopping takes a moment
_WAITED = 0.05  # of the reference's bursts, more than of the candidate's: what other load does hits both
_SECONDS = 0.05  # of CPU time: a process that has only been started


class NothingRunsBeside:
    """Against work on the reference's time and company that slows it, which the kernel's own counts show. Other load on
    the host makes the reference wait, too, and a faster program less, so that waiting counts only beside processes that
    were left. Against work that is given to somebody else there are hints alone: whoever is left is stopped
    together with the program, and shares its cores, so a gain would show elsewhere."""

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
