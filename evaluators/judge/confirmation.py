"""The second opinion that CUDA-L1 asks for: a result that is too good has to be measured by another GPU, too.

(arXiv 2507.14111, section 3.3; `evaluators.timing.paper`.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from evaluators.judge.judgement import Judgement
from evaluators.records import Task
from evaluators.timing.paper import needs_confirmation, second_opinion

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
        finding = second_opinion(self._arch, speedup, self._confirm(task, source) if self._confirm else None)
        if finding is None:
            self._best[task.digest] = speedup
            return judgement
        return replace(judgement, findings=(*judgement.findings, finding))
