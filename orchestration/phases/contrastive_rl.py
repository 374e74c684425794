"""Contrastive reinforcement learning: GRPO on prompts that show scored programs (CUDA-L1 section 2.4).

The policy must first say why one exemplar is faster than another; only the measured speed-up rewards it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from actors.log_fields import log_fields
from evaluators.records import Verdict
from evaluators.reward import FASTER, reward_over, rewarded_speedup, worth_of
from learners.advantages import RunningStatistics, advantages_of, deviation_of, flag_advantages
from learners.records import Rollout, Sample
from orchestration.phases.base import Phase
from orchestration.phases.context import PhaseContext
from orchestration.phases.further import FurtherPrompts, repair_of
from orchestration.phases.task_draw import TaskDraw
from orchestration.run.state import phase_key
from orchestration.step.figures import program_of, signal_figures
from orchestration.step.gathering import Gathering, OnGroup
from orchestration.step.learning import Training
from orchestration.step.records import Prompt, StepResult
from orchestration.step.rehearsal import Rehearsal


class ContrastiveRl(Phase):
    """Groups of responses to one prompt each; smoothed, group-normalised rewards; the clipped objective."""

    name = "contrastive_rl"

    def __init__(self, context: PhaseContext, cycle: int) -> None:
        super().__init__(context, cycle)
        config = context.config
        self._statistics = RunningStatistics()
        self._draw = TaskDraw([task.id for task in context.tasks], config.contrastive_rl, config.seed, self.key)
        self._under_way: dict[int, tuple[Gathering, FurtherPrompts]] = {}  # by step
        self._rehearsal = Rehearsal({}, config.reward)
        self._since = time.monotonic()

    @property
    def steps(self) -> int:
        return self.context.config.contrastive_rl.steps

    @property
    def samples(self) -> int:
        return self.context.config.contrastive_rl.group_size

    @property
    def commit_every(self) -> int:
        return self.context.config.checkpoint_every

    def restore(self, memory: Mapping[str, Any], ahead: Mapping[int, Sequence[Rollout]] = MappingProxyType({})) -> None:
        super().restore(memory)
        for step, rollouts in sorted(ahead.items()):
            if step >= self.steps:  # the phase has become shorter
                continue
            gathering = self.context.pipeline.begin_again(self._gathering([], step), rollouts)
            self._under_way[step] = gathering, FurtherPrompts(iter(()), self._carries_signal, None)
        self._since = time.monotonic()
        self._statistics.load_state_dict(memory.get("statistics", {}))
        self._draw.restore(memory.get("signals", {}))
        self._rehearsal = Rehearsal(dict(memory.get("rehearsal", {})), self.context.config.reward)

    def begin(self) -> None:
        """Makes the current policy the reference of the KL term, and collects what may be rehearsed.

        Those are the lessons of this cycle's SFT, and what contrastive RL of the cycle before found.
        """
        context, writer = self.context, self.context.prompts
        if context.config.contrastive_rl.kl > 0:
            context.learner.set_reference()
        if context.config.contrastive_rl.rehearsal:
            found = context.memory_of(phase_key(self.cycle - 1, self.name)).get("rehearsal", {})
            taught = context.memory_of(phase_key(self.cycle, "sft")).get("lessons", ())
            self._rehearsal = Rehearsal(dict(found), context.config.reward)
            self._rehearsal.learn_of_lessons((lesson, writer.response_of(lesson)) for lesson in taught)

    def remaining(self, done: int) -> Iterator[int]:
        """Ends early once the phase has taken `contrastive_rl.minutes`, and gives up what is under way then."""
        limit = 60.0 * self.context.config.contrastive_rl.minutes
        for step in range(done, self.steps):
            if 0.0 < limit <= self._seconds():
                self.context.pipeline.forget()
                return
            yield step

    def ahead(self) -> dict[int, list[Rollout]]:
        """None of steps that may ask for further prompts, which depend on verdicts to come."""
        return {
            step: gathering.rollouts
            for step, (gathering, _) in self._under_way.items()
            if gathering.on_group is None and gathering.has_responses and not gathering.is_given_up
        }

    def to_commit(self) -> dict[str, Any]:
        """The memory, with the seconds that the phase has taken up to now."""
        self._seconds()
        return super().to_commit()

    def _seconds(self) -> float:
        """Seconds that the phase has taken so far; before a resume, those up to the last commit."""
        before: float = self.memory.get("seconds", 0.0)
        self.memory["seconds"] = before + time.monotonic() - self._since
        self._since = time.monotonic()
        return self.memory["seconds"]

    def gather(self, step: int) -> StepResult:
        """The step's rollouts. Up to `max_staleness` later steps are begun before, and go on meanwhile."""
        ahead = self.context.config.contrastive_rl.max_staleness
        for later in range(step, min(step + ahead, self.steps - 1) + 1):
            if later not in self._under_way:
                with log_fields(step=later):
                    self._under_way[later] = self._begin(later)
        gathering, further = self._under_way.pop(step)
        result = self.context.pipeline.finish(gathering)
        result.metrics["groups_refilled"] = float(further.refilled)
        if self.context.config.contrastive_rl.repair_turns:
            result.metrics["groups_repaired"] = float(further.repaired)
        return result

    def _begin(self, step: int) -> tuple[Gathering, FurtherPrompts]:
        """Begins with the step's groups. With `draw: replace`, groups of other tasks take the place of those whose
        responses are all rewarded alike (dynamic sampling, DAPO, arXiv 2503.14476, section 3.2). With `repair_turns`,
        groups with a failing program are followed by a repair turn."""
        config = self.context.config
        prompts = self.prompts(step)
        others = self._draw.replacements([prompt.task_id for prompt in prompts], self.rng(step))
        kinds = self._with_kinds(others, self.rng(step, "refill"))
        further = FurtherPrompts(
            (self.prompt(*kind) for kind in kinds),
            self._carries_signal,
            partial(self._repair, step) if config.contrastive_rl.repair_turns else None,
        )
        may_go_on = bool(others) or config.contrastive_rl.repair_turns > 0
        wanted = self._gathering(prompts, step, further if may_go_on else None)
        return self.context.pipeline.begin(wanted), further

    def _gathering(self, prompts: Sequence[Prompt], step: int, on_group: OnGroup | None = None) -> Gathering:
        config = self.context.config
        return Gathering(
            prompts,
            samples=self.samples,
            temperature=config.rollout.temperature,
            preset=config.evaluator.preset,
            on_group=on_group,
            deadline=config.contrastive_rl.deadline,
            seed=self.seed(step, "samples"),
        )

    def _repair(self, step: int, rollouts: Sequence[Rollout], verdicts: Mapping[str, Verdict]) -> Prompt | None:
        rng = self.rng(step, f"repair {rollouts[0].group}")
        return repair_of(rollouts, verdicts, self.context.prompts, rng)

    def _carries_signal(self, rollouts: Sequence[Rollout], verdicts: Mapping[str, Verdict]) -> bool:
        """Whether the responses of a group are not all rewarded alike."""
        known = [reward for reward in self.rewards(rollouts, verdicts) if reward is not None]
        earned = [earns for earns in self.earn_right_reward(rollouts, verdicts) if earns is not None]
        return len(set(known)) > 1 or len(set(earned)) > 1

    def rewards(self, rollouts: Sequence[Rollout], verdicts: Mapping[str, Verdict]) -> list[float | None]:
        """The reward of each rollout, by `reward.worth` and `evaluation.reward`. None is neutral. A response without a
        program gets 0."""
        config, rewards = self.context.config, list[float | None]()
        for rollout in rollouts:
            judged = self.verdicts_on(rollout, verdicts)
            shown, is_copy = rollout.fastest_shown or 1.0, bool(rollout.copy_of)
            rewards.append(
                reward_over(judged, config.evaluation.reward, config.reward, fastest_shown=shown, is_copy=is_copy)
                if judged
                else 0.0
            )
        return rewards

    def earn_right_reward(self, group: Sequence[Rollout], verdicts: Mapping[str, Verdict]) -> list[float | None]:
        """1 for each response of a group that earns `contrastive_rl.right_reward`, 0 for the others, None for those
        that are neutral: right, and no copy of what the prompt shows, in a group without a response that is faster
        than the reference."""
        config, earned = self.context.config, list[float | None]()
        if not config.contrastive_rl.right_reward:
            return [0.0] * len(group)
        for rollout in group:
            judged = self.verdicts_on(rollout, verdicts)
            if not judged:
                earned.append(0.0)
                continue
            is_right = all(verdict.succeeded for verdict in judged)
            if reward_over(judged, config.evaluation.reward, config.reward) is None:
                earned.append(None)
            elif is_right and (rewarded_speedup(judged[0], config.reward) or 0.0) > FASTER:
                return [0.0] * len(group)
            else:
                earned.append(float(is_right and rollout.copy_of == ""))
        return earned

    def prompts(self, step: int) -> list[Prompt]:
        """The step's tasks; a share `contrastive_share` of their prompts shows exemplars drawn from the buffer."""
        tasks = self._draw.of_step(step, self.rng(step, "tasks"))
        return [self.prompt(*kind) for kind in self._with_kinds(tasks, self.rng(step, "exemplars"))]

    def _with_kinds(self, tasks: Iterable[str], rng: np.random.Generator) -> list[tuple[str, bool]]:
        """Each task, and whether its prompt shows exemplars: drawn with the probability `contrastive_share`."""
        share = self.context.config.contrastive_rl.contrastive_share
        return [(task_id, bool(rng.random() < share)) for task_id in tasks]

    def prompt(self, task_id: str, shows_exemplars: bool) -> Prompt:
        """A prompt on a task. Exemplars are drawn now."""
        if not shows_exemplars:
            return self.context.prompts.one_shot(task_id)
        scores = self.context.config.contrastive_rl.exemplars == "scores"
        return self.context.prompts.contrastive(task_id, self._bound(task_id), scores=scores)

    def _bound(self, task_id: str) -> float:
        """The speed-up that exemplars stay below; infinite if they need not.

        They need not if no known program is clearly faster than the reference either.
        """
        config, best = self.context.config, self.context.prompts.buffer.best(task_id)
        step = 1.0 + config.reward.resolution
        if not worth_of(config.reward).shows_only_slower or best is None or best.speedup <= step:
            return math.inf
        return best.speedup / step

    def credit(self, result: StepResult) -> list[Rollout]:
        """Rewards from verdicts; advantages by smoothing and group normalisation."""
        rl = self.context.config.contrastive_rl
        by_group: dict[str, list[Rollout]] = {}
        for rollout in result.rollouts:
            by_group.setdefault(rollout.group, []).append(rollout)
        groups = list(by_group.values())
        rewards = [self.rewards(group, result.verdicts) for group in groups]
        earned = [self.earn_right_reward(group, result.verdicts) for group in groups]
        advantages = self._advantages(groups, rewards, earned)
        for group, of_group, values, right in zip(groups, rewards, advantages, earned, strict=True):
            if not group[0].repairs:
                self._draw.record(group[0].task_id, any(values), self._variation(group[0].task_id, of_group, right))
        if rl.rehearsal:
            verdicts = result.verdicts
            wanted = [one for one in result.rollouts if all(v.succeeded for v in self.verdicts_on(one, verdicts))]
            self._rehearsal.learn_of_rollouts(wanted, verdicts)
            self.memory["rehearsal"] = self._rehearsal.memory
        self.memory |= {"statistics": self._statistics.state_dict(), "signals": self._draw.signals}
        credited = [
            replace(rollout, reward=_total(reward, earns, rl.right_reward), advantage=advantage)
            for group in zip(groups, rewards, earned, advantages, strict=True)
            for rollout, reward, earns, advantage in zip(*group, strict=True)
        ]
        judged = [rollout.reward for rollout in credited if rollout.reward is not None]
        result.metrics["reward"] = float(np.mean(judged)) if judged else 0.0
        result.metrics["groups_with_signal"] = sum(map(any, advantages)) / max(len(advantages), 1)
        result.metrics |= signal_figures(groups, earned, watches_copies=bool(rl.right_reward))
        return credited

    def _advantages(
        self,
        groups: Sequence[Sequence[Rollout]],
        rewards: Sequence[Sequence[float | None]],
        earned: Sequence[Sequence[float | None]],
    ) -> list[list[float]]:
        """The advantages of a step's groups, in their shape."""
        rl = self.context.config.contrastive_rl
        scale = rl.loss_mean != "constant"  # Dr. GRPO
        programs = [[program_of(rollout) for rollout in group] for group in groups] if rl.share_duplicates else None
        keys = [group[0].task_id for group in groups]
        advantages = advantages_of(
            rewards,
            keys,
            self._statistics,
            rl.smoothing_clip,
            scale=scale,
            negative_weight=rl.negative_weight,
            programs=programs,
        )
        if not (rl.right_reward and rl.smoothing_clip):  # without a clip all advantages are 0
            return advantages
        for index, flags in enumerate(earned):
            of_group = programs[index] if programs else None
            more = flag_advantages(flags, rl.right_reward, scale=scale, programs=of_group)
            weighed = [value if value > 0 else rl.negative_weight * value for value in more]
            advantages[index] = [one + other for one, other in zip(advantages[index], weighed, strict=True)]
        return advantages

    def _variation(self, task_id: str, rewards: Sequence[float | None], earned: Sequence[float | None]) -> float:
        """How much a group's rewards vary, in the task's deviations (`TaskDraw`)."""
        rl = self.context.config.contrastive_rl
        if all(reward is None for reward in rewards):
            return 0.0
        varied = deviation_of(rewards, self._statistics.of(task_id), rl.smoothing_clip)
        return max(varied, rl.right_reward if len(set(earned) - {None}) > 1 else 0.0)

    def training(self, step: int, rollouts: Sequence[Rollout]) -> Training:
        """Training on the step's groups (`contrastive_rl.normaliser`), and then a rehearsal."""
        config = self.context.config
        with_signal = {rollout.group for rollout in rollouts if rollout.advantage}
        samples = [
            Sample(one.prompt_ids, one.response_ids, one.advantage or 0.0, one.logprobs, one.group in with_signal)
            for one in rollouts
            if config.contrastive_rl.normaliser == "all" or one.group in with_signal
        ]
        return partial(self._train, samples, self._to_rehearse(step))

    def _train(self, samples: Sequence[Sample], lessons: Sequence[Sample]) -> dict[str, float]:
        """GRPO on `samples`, then one optimiser step on `lessons`, at the phase's rate, if there are any."""
        config, learner = self.context.config, self.context.learner
        metrics: dict[str, float] = learner.train_grpo(
            samples, config.contrastive_rl.learning_rate, config.contrastive_rl, config.rollout.temperature
        )
        if not lessons:
            return metrics
        learned = learner.train_cross_entropy(lessons, config.contrastive_rl.learning_rate)
        return metrics | {
            f"rehearsal_{name}": learned[name] for name in ("loss", "seconds", "skipped_steps") if name in learned
        }

    def _to_rehearse(self, step: int) -> list[Sample]:
        """The best known responses to some tasks, drawn for the step."""
        rng = self.rng(step, "rehearsal")
        drawn = self._rehearsal.draw(self.context.config.contrastive_rl.rehearsal, rng)
        kinds = self._with_kinds([task_id for task_id, _ in drawn], rng)
        return [
            Sample(self.prompt(*kind).ids, tuple(self.context.prompts.encode_response(response)))
            for kind, (_, response) in zip(kinds, drawn, strict=True)
        ]


def _total(reward: float | None, earns: float | None, right_reward: float) -> float | None:
    return None if reward is None else reward + right_reward * (earns or 0.0)
