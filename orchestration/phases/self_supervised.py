"""Self-supervised learning: sample, evaluate, fine-tune on the successes alone (CUDA-L1 section 2.3).

REINFORCE with reward 0 or 1 and no baseline: failures leave no gradient. Speed plays no part but for
`self_supervised.min_speedup`, below which a correct program is no success; by default every one is, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from evaluators.records import Outcome, Verdict
from evaluators.reward import is_success
from learners.records import Rollout, Sample
from orchestration.phases.base import Phase, train_in_batches
from orchestration.step.learning import Training
from orchestration.step.records import Prompt, StepResult


class SelfSupervised(Phase):
    """Rounds over all tasks, until the success rate stops rising."""

    name = "self_supervised"

    @property
    def steps(self) -> int:
        return self.context.config.self_supervised.max_rounds

    @property
    def samples(self) -> int:
        return self.context.config.self_supervised.samples

    def remaining(self, done: int) -> Iterator[int]:
        """Ends early if the last `patience` rounds raised the best success rate by less than `min_gain`."""
        config = self.context.config.self_supervised
        for step in range(done, self.steps):
            rates: list[float] = list(self.memory.get("success_rates", ()))
            if len(rates) > config.patience:
                before, since = rates[: -config.patience], rates[-config.patience :]
                if max(since) < max(before) + config.min_gain:
                    return
            yield step

    def prompts(self, step: int) -> list[Prompt]:
        share = self.context.config.self_supervised.contrastive_share
        rng, writer = self.rng(step), self.context.prompts
        return [
            writer.contrastive(task.id) if rng.random() < share else writer.one_shot(task.id)
            for task in self.context.tasks
        ]

    def credit(self, result: StepResult) -> list[Rollout]:
        """Reward 1 for a program that is right and fast enough on every architecture that rewards are over, 0 for any
        other, none for a failure of our own to judge."""
        return [
            rollout
            if rollout.outcome == Outcome.INFRA
            or any(verdict.outcome is Outcome.INFRA for verdict in self.verdicts_on(rollout, result.verdicts))
            else replace(rollout, reward=float(self._succeeded(rollout, result.verdicts)))
            for rollout in result.rollouts
        ]

    def _succeeded(self, rollout: Rollout, verdicts: Mapping[str, Verdict]) -> bool:
        config, judged = self.context.config, self.verdicts_on(rollout, verdicts)
        least = config.self_supervised.min_speedup
        return bool(judged) and all(is_success(verdict, config.reward, least) for verdict in judged)

    def training(self, step: int, rollouts: Sequence[Rollout]) -> Training:
        config = self.context.config.self_supervised
        successes = [rollout for rollout in rollouts if rollout.reward]
        rates: list[float] = list(self.memory.get("success_rates", ()))
        judged = sum(rollout.reward is not None for rollout in rollouts)
        self.memory["success_rates"] = [*rates, len(successes) / max(judged, 1)]
        groups: dict[str, list[Sample]] = {}
        for rollout in successes:
            groups.setdefault(rollout.group, []).append(Sample(rollout.prompt_ids, rollout.response_ids))
        return partial(
            train_in_batches,
            self.context.learner,
            list(groups.values()),
            epochs=config.epochs,
            batch_size=config.batch_size,
            learning_rate=lambda _: config.learning_rate,
            rng=self.rng(step + self.steps),
        )
