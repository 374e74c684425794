"""Further prompts of a step of contrastive RL, which its judged groups call for.

Those are other tasks in place of groups without a signal, and repair turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from evaluators.records import Verdict
from learners.records import Rollout
from orchestration.step.lessons import REPAIRABLE
from orchestration.step.prompts import PromptWriter
from orchestration.step.records import Prompt
from prompts.parse import parse_response

Verdicts = Mapping[str, Verdict]


class FurtherPrompts:
    """Answers each judged group with further prompts. `refilled` and `repaired` count them.

    `replacements`: gives the prompts of other tasks, for groups that `carries_signal` denies. `repairs`: writes the
    repair turn of a group; None if there are none.
    """

    def __init__(
        self,
        replacements: Iterator[Prompt],
        carries_signal: Callable[[Sequence[Rollout], Verdicts], bool],
        repairs: Callable[[Sequence[Rollout], Verdicts], Prompt | None] | None,
    ) -> None:
        self._replacements, self._carries_signal, self._repairs = replacements, carries_signal, repairs
        self.refilled = self.repaired = 0

    def __call__(self, rollouts: Sequence[Rollout], verdicts: Verdicts) -> list[Prompt]:
        """A repair turn is neither replaced nor repaired again."""
        if any(rollout.repairs for rollout in rollouts):
            return []
        further = list[Prompt]()
        if self._repairs is not None and (repair := self._repairs(rollouts, verdicts)) is not None:
            self.repaired += 1
            further.append(repair)
        if not self._carries_signal(rollouts, verdicts) and (other := next(self._replacements, None)) is not None:
            self.refilled += 1
            further.append(other)
        return further


def repair_of(
    rollouts: Sequence[Rollout], verdicts: Verdicts, writer: PromptWriter, rng: np.random.Generator
) -> Prompt | None:
    """The repair turn of a group: a prompt with one of its failing programs, drawn among the different ones, and the
    judge's message on it.

    None if no program fails with a message, or if there is no room for any of them.
    """
    failing: dict[str, Rollout] = {}
    for rollout in rollouts:
        verdict = verdicts.get(rollout.candidate_digest or "")
        if verdict is not None and verdict.outcome in REPAIRABLE and verdict.message:
            failing.setdefault(verdict.candidate, rollout)
    digests = sorted(failing)  # responses come in any order
    for index in rng.permutation(len(digests)):
        rollout, verdict = failing[digests[index]], verdicts[digests[index]]
        program = parse_response(rollout.response, rollout.finish_reason).code
        if program is None:
            continue
        prompt = writer.repair(rollout.task_id, program, str(verdict.outcome), verdict.message)
        if prompt is not None:
            return replace(prompt, group=f"{rollout.group}:repair")
    return None
