"""Where kernels are recorded, those of a call that writes its output must be there."""

from __future__ import annotations

from collections.abc import Iterable

from evaluators.guard.evidence import Evidence
from evaluators.records import Finding


class KernelsAreSeen:
    """Against a program that switches the records off or takes them away. A call that fills its output on a GPU runs a
    kernel or copies memory; either leaves a record."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        if evidence.is_recorded and evidence.trace is None:
            yield Finding(
                "records", "suspect", "its process says that it cannot record kernels, and the reference's can"
            )
        if evidence.is_recorded and evidence.trace is not None and not evidence.trace.kernels:
            yield Finding("records", "suspect", "no kernel was recorded in a call that filled its output")
