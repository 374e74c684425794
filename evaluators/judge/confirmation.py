"""The second opinion that CUDA-L1 asks for: a result that is too good has to be measured by another GPU, too.

(arXiv 2507.14111, section 3.3; `evaluators.timing.paper`.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from evaluators.judge.judgement import Judgement
from evaluators.records import HINT, SUSPECT, Finding, Task
from evaluators.timing.paper import agree, needs_confirmation

Confirm = Callable[[Task, str], float | None]
"""Gives the speed-up of a task's program on another device of this kind, or None without one."""


class Confirmation:
    """Has speed-ups confirmed, and remembers the best confirmed one of each task."""

    def __init__(self, arch: str, confirm: Confirm | None) -> None:
        self._arch, self._confirm = arch, confirm
        self._best: dict[str, float] = {}

    def review(self, task: Task, source: str, judgement: Judgement) -> Judgement:
        """The judgement, with a finding if its speed-up needed a second opinion and did not get a good one."""
        if judgement.speedup is None:
            return judgement
        speedup, best = judgement.speedup.value, self._best.get(task.digest)
        if not needs_confirmation(speedup, best):
            self._best[task.digest] = max(speedup, best or 0.0)
            return judgement
        confirmed = self._confirm(task, source) if self._confirm else None
        if confirmed is None:
            severity, message = HINT, f"{speedup:.2f}x is not confirmed: no verdict of a second {self._arch}"
        elif agree(speedup, confirmed):
            self._best[task.digest] = speedup
            return judgement
        else:
            severity, message = SUSPECT, f"a second {self._arch} measured {confirmed:.2f}x, not {speedup:.2f}x"
        return replace(judgement, findings=(*judgement.findings, Finding("confirmation", severity, message)))
