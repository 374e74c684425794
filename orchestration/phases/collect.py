"""Verified programs of teachers for a later run: the part of SFT that asks and judges, without a policy."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import ClassVar

from learners.records import Rollout
from orchestration.phases.base import Phase
from orchestration.phases.collecting import Collecting, lines_of
from orchestration.step.learning import Training
from orchestration.step.records import StepResult

_log = logging.getLogger(__name__)


class Collect(Phase):
    """One step, which writes `examples.jsonl` in the run directory: all right programs, with prompt, response, verdict
    and cost. The memory holds what each teacher gave, and how many examples there are."""

    name = "collect"
    learns: ClassVar[bool] = False

    @property
    def steps(self) -> int:
        return 1

    def gather(self, step: int) -> StepResult:
        """Asks the teachers, verifies their programs, and writes the examples."""
        prompts = self.context.prompts
        collected = Collecting(self.context, self.key).run()
        examples = list(
            collected.examples(lambda task_id: prompts.one_shot(task_id).text, lambda row: prompts.response_of(row))
        )
        self.context.archive.write_examples(lines_of(examples))
        if not examples:
            _log.warning("%s: none of the %d programs of teachers was right", self.key, len(collected.proposed))
        self.memory |= {"teachers": collected.summaries(), "examples": len(examples)}
        collected.result.metrics = {**collected.figures(), "examples": float(len(examples))}
        return collected.result

    def training(self, step: int, rollouts: Sequence[Rollout]) -> Training:
        return dict
