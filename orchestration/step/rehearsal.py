"""Rehearsal: contrastive RL learns the best known response to some tasks again after each step.

Steps on a few tasks overwrite a small policy's knowledge of the others. A task whose samples are all right, or all
wrong, has no policy gradient that would preserve it. InstructGPT adds cross-entropy on its pretraining data to the
policy gradient for the same reason (PPO-ptx, arXiv 2203.02155, section 3.5); self-imitation learning does so with the
policy's own best responses (arXiv 1806.05635).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from configs.schema import RewardConfig
from evaluators.records import Candidate, Outcome, Verdict
from evaluators.reward import is_success
from learners.records import Rollout


class Rehearsal:
    """The fastest right response to each task, if it is clearly faster than the reference.

    `memory`: plain JSON, by task id: `response`, `candidate` (its digest) and `speedup`.
    """

    def __init__(self, memory: dict[str, dict[str, Any]], config: RewardConfig) -> None:
        self.memory = memory
        self._config = config

    def learn_of_lessons(self, lessons: Iterable[tuple[Mapping[str, Any], str]]) -> None:
        """Takes in the lessons of SFT, each with its response."""
        for lesson, response in lessons:
            digest = Candidate.propose(lesson["task_id"], lesson["source"], "").digest
            self.keep(lesson["task_id"], response, digest, lesson["speedup"] or 0.0)

    def learn_of_rollouts(self, rollouts: Iterable[Rollout], verdicts: Mapping[str, Verdict]) -> None:
        """Takes in the policy's own right responses, and forgets programs that are known as hacks by now."""
        hacks = {digest for digest, verdict in verdicts.items() if verdict.outcome is Outcome.HACK}
        for task_id in [task_id for task_id, known in self.memory.items() if known["candidate"] in hacks]:
            del self.memory[task_id]
        for rollout in rollouts:
            verdict = verdicts.get(rollout.candidate_digest or "")
            if verdict is not None and is_success(verdict, self._config, self._step):
                speedup = verdict.speedup_over(self._config.baseline) or 0.0
                self.keep(rollout.task_id, rollout.response, verdict.candidate, speedup)

    def keep(self, task_id: str, response: str, candidate: str, speedup: float) -> None:
        """Keeps a response that is clearly faster than the reference and than the one that it replaces; noise alone
        changes nothing. `candidate`: the digest of its program."""
        before = self.memory.get(task_id, {}).get("speedup", 0.0)
        if speedup >= self._step and speedup > before * self._step:
            self.memory[task_id] = {"response": response, "candidate": candidate, "speedup": speedup}

    def draw(self, tasks: int, rng: np.random.Generator) -> Sequence[tuple[str, str]]:
        """Draws up to `tasks` tasks uniformly, without repeats: pairs of task id and response."""
        known = sorted(self.memory)
        chosen = rng.permutation(len(known))[:tasks]
        return [(known[index], self.memory[known[index]]["response"]) for index in chosen]

    @property
    def _step(self) -> float:
        """The factor from which a program counts as clearly faster."""
        return 1.0 + self._config.resolution
