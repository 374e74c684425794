"""A phase that samples and judges, and trains nothing. It asks about all tasks, held-out ones among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from evaluators.records import Task
from evaluators.reward import FASTER
from learners.records import Rollout
from orchestration.phases.base import Phase
from orchestration.step.learning import Training
from orchestration.step.records import StepResult


class Frozen(Phase):
    """Rounds of prompts to a policy that stays as it is. What is right enters the buffer, as in any phase."""

    learns: ClassVar[bool] = False

    @property
    def tasks(self) -> list[Task]:
        """All tasks of the run."""
        return [*self.context.tasks, *self.context.held_out]

    def describe(self, result: StepResult) -> dict[str, float]:
        """Also what an endpoint was asked for so far."""
        endpoint = self.context.endpoint
        return super().describe(result) | (endpoint.figures() if endpoint is not None else {})

    def training(self, step: int, rollouts: Sequence[Rollout]) -> Training:
        return dict

    def examine(self, step: int) -> dict[str, float]:
        """The best programs that are known after a step: `best_speedup`, their geometric mean over tasks, where a task
        without a program that is faster than the reference counts as 1, and the share of the others."""
        buffer = self.context.prompts.buffer
        best = [max(1.0, known.speedup) if (known := buffer.best(task.id)) else 1.0 for task in self.tasks]
        return {
            "best_speedup": math.exp(sum(map(math.log, best)) / len(best)),
            "tasks_faster": sum(speedup > FASTER for speedup in best) / len(best),
        }
