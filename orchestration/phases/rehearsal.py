"""Rehearsal: the best response known to each task, learnt again while contrastive RL learns other tasks.

Steps on a few tasks overwrite what a small policy knows of the others, and a task whose samples are all right, or all
wrong, has no gradient of its own that would hold it. Learning by cross-entropy beside the policy gradient is what
InstructGPT does with its pretraining data (PPO-ptx, arXiv 2203.02155, section 3.5), and with the policy's own best
responses what self-imitation learning does (arXiv 1806.05635).
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
    """The fastest right response to each task, of those that are clearly faster than the reference.

    `memory`: plain JSON that it is kept in, by task: `response`, `candidate` (the digest) and `speedup`.
    """

    def __init__(self, memory: dict[str, dict[str, Any]], config: RewardConfig) -> None:
        self.memory = memory
        self._config = config

    def learn_of_lessons(self, lessons: Iterable[tuple[Mapping[str, Any], str]]) -> None:
        """What SFT taught: its lessons, each with its response."""
        for lesson, response in lessons:
            if (lesson["speedup"] or 0.0) >= self._step:
                digest = Candidate.propose(lesson["task_id"], lesson["source"], "").digest
                self._know(lesson["task_id"], response, digest, lesson["speedup"])

    def learn_of_rollouts(self, rollouts: Iterable[Rollout], verdicts: Mapping[str, Verdict]) -> None:
        """What the policy found itself; what is a hack by now is forgotten."""
        hacks = {digest for digest, verdict in verdicts.items() if verdict.outcome is Outcome.HACK}
        for task_id in [task_id for task_id, known in self.memory.items() if known["candidate"] in hacks]:
            del self.memory[task_id]
        for rollout in rollouts:
            verdict = verdicts.get(rollout.candidate_digest or "")
            if verdict is not None and is_success(verdict, self._config, self._step):
                speedup = verdict.speedup_over(self._config.baseline) or 0.0
                self._know(rollout.task_id, rollout.response, verdict.candidate, speedup)

    def draw(self, tasks: int, rng: np.random.Generator) -> Sequence[tuple[str, str]]:
        """So many tasks, drawn alike, or all there are; each with its response."""
        known = sorted(self.memory)
        chosen = rng.permutation(len(known))[:tasks]
        return [(known[index], self.memory[known[index]]["response"]) for index in chosen]

    @property
    def _step(self) -> float:
        """What counts as clearly faster."""
        return 1.0 + self._config.resolution

    def _know(self, task_id: str, response: str, candidate: str, speedup: float) -> None:
        """A response takes the place of one that is clearly slower: what noise alone makes faster changes nothing."""
        before = self.memory.get(task_id, {}).get("speedup", 0.0)
        if speedup > before * self._step:
            self.memory[task_id] = {"response": response, "candidate": candidate, "speedup": speedup}
