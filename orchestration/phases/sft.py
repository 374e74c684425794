"""Supervised fine-tuning on programs that teachers proposed and the evaluator verified (CUDA-L1 section 2.2).

Step 0 gathers the lessons; every further step is one epoch over them. A policy that learns lessons by heart loses
its entropy, so the phase measures that on held-out prompts and may end early.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from learners.records import Rollout, Sample
from orchestration.phases.base import Phase, train_in_batches
from orchestration.phases.collecting import Collecting
from orchestration.step.learning import Training
from orchestration.step.lessons import LessonWriter, broken_lessons, verified_repairs
from orchestration.step.proposals import Proposal
from orchestration.step.records import StepResult
from orchestration.step.variety import token_entropy

_log = logging.getLogger(__name__)
_FINAL_SHARE = 0.1  # of the learning rate, with which the last epoch ends


class Sft(Phase):
    """Cross-entropy on the responses alone. Programs slower than `sft.min_speedup` are no lessons.

    Every right program enters the buffer, however slow.
    """

    name = "sft"
    can_be_shorter = False  # its learning rate falls to the last epoch

    @property
    def steps(self) -> int:
        return 1 + self.context.config.sft.epochs

    def gather(self, step: int) -> StepResult:
        """Step 0 asks the teachers and verifies their programs. Later steps use the committed lessons."""
        if step > 0:
            return StepResult()
        config = self.context.config
        collected = Collecting(self.context, self.key).run()
        result = collected.result
        lessons: dict[str, dict[str, Any]] = {}  # by digest: two teachers may propose one program
        ideas: dict[str, str] = {}  # of all right programs, however slow
        for candidate, proposal in collected.proposed:
            verdict = result.verdicts[candidate.digest]
            if verdict.succeeded:
                ideas.setdefault(candidate.digest, proposal.design)
            if collected.is_success(verdict):
                speedup = verdict.speedup_over(config.reward.baseline)
                lessons.setdefault(candidate.digest, _lesson(proposal, speedup))
        if not lessons:
            _log.warning(
                "%s: none of the %d programs that teachers proposed was right, with a speed-up of %g; nothing to learn",
                self.key,
                len(collected.proposed),
                config.sft.min_speedup,
            )
        self.memory |= {"lessons": list(lessons.values()), "ideas": ideas, "teachers": collected.summaries()}
        result.metrics = {**collected.figures(), "lessons": float(len(lessons))}
        self._break_lessons(result)
        return result

    def _break_lessons(self, result: StepResult) -> None:
        """Makes mistakes in a share of the lessons, and keeps those that the judge sees fail, with its messages."""
        config, context = self.context.config, self.context
        if not config.sft.repair_share:
            return
        rng = self.rng(0, "mistakes")
        broken = broken_lessons(self.memory["lessons"], config.sft.repair_share, rng)
        repairs, failing, verdicts = verified_repairs(
            broken, lambda candidates: context.pipeline.evaluate(candidates, config.evaluator.preset), rng
        )
        self.memory["repairs"] = repairs
        result.candidates |= failing
        result.verdicts |= verdicts
        result.metrics |= {"mistakes": float(len(broken)), "repairs": float(len(repairs))}

    def training(self, step: int, rollouts: Sequence[Rollout]) -> Training:
        """An epoch over the lessons; nothing for step 0."""
        if step == 0:
            return dict
        rng = self.rng(step)
        writer = LessonWriter(self.context.prompts, self.context.config, self.memory.get("ideas", {}))
        groups = writer.write(self.memory["lessons"], self.memory.get("repairs", ()), rng)
        return partial(self._train, step, groups, writer.contrastive, rng)

    def _train(
        self, step: int, groups: Sequence[Sequence[Sample]], contrastive: int, rng: np.random.Generator
    ) -> dict[str, float]:
        """Trains for an epoch on groups of samples, of which `contrastive` have contrastive prompts."""
        config = self.context.config.sft
        done = int(self.memory.get("optimiser_steps", 0))
        metrics = train_in_batches(
            self.context.learner,
            groups,
            epochs=1,
            batch_size=config.batch_size,
            learning_rate=lambda index: config.learning_rate * self._share_of_rate(step - 1, done + index),
            rng=rng,
        )
        self.memory["optimiser_steps"] = done + metrics.get("optimiser_steps", 0.0)
        return metrics | {"contrastive_lessons": float(contrastive)}

    def examine(self, step: int) -> dict[str, float]:
        """The policy's entropy on held-out prompts, by a few responses of its own that nobody judges.

        They are sampled at temperature 1 from the same prompts after each epoch. Step 0 measures the policy before it
        is taught.
        """
        context, wanted = self.context, self.context.config.sft.entropy_samples
        if not context.held_out or not wanted:
            return {}
        order = np.random.default_rng([context.config.seed, *f"{self.key}entropy".encode()])
        chosen = [context.held_out[index].id for index in order.permutation(len(context.held_out))[:wanted]]
        prompts = [context.prompts.one_shot(task_id) for task_id in chosen]
        entropy = token_entropy(
            context.pipeline.sample(prompts, -(-wanted // len(prompts)), 1.0, self.seed(step, "entropy"))
        )
        if entropy is None:
            return {}
        self.memory["entropy"] = entropy
        return {"held_out/token_entropy": entropy}

    def remaining(self, done: int) -> Iterator[int]:
        """Ends early if an epoch left the policy less entropy than `sft.min_entropy`."""
        for step in range(done, self.steps):
            entropy: float = self.memory.get("entropy", math.inf)
            if step > 1 and entropy < self.context.config.sft.min_entropy:
                _log.info("%s: ends after epoch %d with %.2f nats per token", self.key, step - 1, entropy)
                return
            yield step

    def _share_of_rate(self, epoch: int, optimiser_step: int) -> float:
        """The learning rate of an optimiser step, as a share of the configured one.

        It rises linearly to 1 over the first steps, because Adam's moments rest on few gradients there, and falls as
        a cosine from epoch to epoch (Loshchilov and Hutter 2017).
        """
        config = self.context.config.sft
        warmup = min(1.0, (optimiser_step + 1) / max(config.warmup_steps, 1))
        cosine = 0.5 * (1 + math.cos(math.pi * epoch / max(config.epochs - 1, 1)))
        return warmup * (_FINAL_SHARE + (1 - _FINAL_SHARE) * cosine)


def _lesson(proposal: Proposal, speedup: float | None) -> dict[str, Any]:
    return {
        "task_id": proposal.task_id,
        "source": proposal.source,
        "analysis": proposal.analysis,
        "design": proposal.design,
        "speedup": speedup,
    }
