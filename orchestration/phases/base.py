"""What the driver asks of a phase: the prompts of a step, and what to learn from their judged rollouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from configs.archs import counted_archs
from evaluators.records import Verdict
from learners.records import Rollout, Sample
from orchestration.phases.context import PhaseContext
from orchestration.run.state import phase_key
from orchestration.step.gathering import Gathering
from orchestration.step.learning import Training
from orchestration.step.reading import Lessons, lessons_of, reading
from orchestration.step.records import Prompt, StepResult, verdicts_over


class Phase(ABC):
    """One phase of one cycle. `memory` is plain JSON that survives a restart: each commit stores a copy of it."""

    name: ClassVar[str]
    can_be_shorter: ClassVar[bool] = True
    """Whether a run that is asked to end early may close the phase before its last step."""
    learns: ClassVar[bool] = True
    """Whether it trains the policy. Otherwise no assessment follows, which would measure the same policy again."""

    def __init__(self, context: PhaseContext, cycle: int) -> None:
        self.context = context
        self.cycle = cycle
        self.memory: dict[str, Any] = {}
        self._lessons: Lessons | None = None
        self._counted = counted_archs(context.config)

    @property
    def key(self) -> str:
        return phase_key(self.cycle, self.name)

    @property
    @abstractmethod
    def steps(self) -> int:
        """The most steps that the phase takes."""

    @property
    def commit_every(self) -> int:
        """Steps between commits."""
        return 1

    def restore(self, memory: Mapping[str, Any], ahead: Mapping[int, Sequence[Rollout]] = MappingProxyType({})) -> None:
        """Continues with what was committed: the memory, and the responses of later steps (`ahead`)."""
        self.memory = dict(memory)

    def ahead(self) -> dict[int, list[Rollout]]:
        """The responses of later steps that the policy has sampled already, for a resume: no newer version may sample
        them again. Of steps that are left out a resume samples all."""
        return {}

    def to_commit(self) -> dict[str, Any]:
        """A copy of the memory, for a resume; the phase goes on with the original."""
        return deepcopy(self.memory)

    def begin(self) -> None:  # noqa: B027 - a phase may have nothing to begin with
        """Called before the first step, and never on a resume in the middle."""

    def remaining(self, done: int) -> Iterator[int]:
        """The steps still to take. A phase that ends by a criterion stops giving steps."""
        return iter(range(done, self.steps))

    def prompts(self, step: int) -> list[Prompt]:
        """The prompts to generate from in this step."""
        return []

    @property
    def samples(self) -> int:
        """Responses per prompt."""
        return 1

    def gather(self, step: int) -> StepResult:
        """The step's judged rollouts: by default, generated from the prompts by the current policy."""
        config = self.context.config
        wanted = Gathering(
            self.prompts(step),
            samples=self.samples,
            temperature=config.rollout.temperature,
            preset=config.evaluator.preset,
            seed=self.seed(step, "samples"),
        )
        return self.context.pipeline.run(wanted)

    def credit(self, result: StepResult) -> list[Rollout]:
        """The rollouts with rewards and advantages."""
        return result.rollouts

    def verdicts_on(self, rollout: Rollout, verdicts: Mapping[str, Verdict]) -> list[Verdict]:
        """The verdicts on a rollout's program that its reward is over: the one on `evaluator.arch` first, and those on
        further architectures that count (`evaluation.reward`). Empty without a program."""
        digest = rollout.candidate_digest or ""
        return verdicts_over(verdicts, digest, self._counted) if digest in verdicts else []

    def describe(self, result: StepResult) -> dict[str, float]:
        """Metrics of how the step's responses use what they were shown and taught."""
        if not result.rollouts:
            return {}
        if self._lessons is None:
            keys = [phase_key(cycle, "sft") for cycle in range(1, self.cycle + 1)]
            self._lessons = lessons_of(self.context.memory_of, keys)
        return reading(result.rollouts, self._lessons)

    def examine(self, step: int) -> dict[str, float]:
        """Metrics of the policy that a step has made, once the engines have it."""
        return {}

    @abstractmethod
    def training(self, step: int, rollouts: Sequence[Rollout]) -> Training:
        """What trains the policy on the step. All prompts and responses in it are written now, in this thread."""

    def rng(self, step: int, purpose: str = "") -> np.random.Generator:
        """A generator that depends on seed, phase, step and purpose alone, so that a step done again repeats."""
        return np.random.default_rng(self.seed(step, purpose))

    def seed(self, step: int, purpose: str = "") -> list[int]:
        """The numbers that the step's random draws for a purpose depend on."""
        return [self.context.config.seed, step, *f"{self.key}{purpose}".encode()]


def train_in_batches(
    learner: Any,
    groups: Sequence[Sequence[Sample]],
    *,
    epochs: int,
    batch_size: int,
    learning_rate: Callable[[int], float],
    rng: np.random.Generator,
) -> dict[str, float]:
    """Trains by cross-entropy on shuffled batches of about `batch_size` samples; returns metrics, means over batches
    (`seconds` and `skipped_steps`: sums).

    Each of `groups` holds the samples of one prompt. They stay together, so that the learner computes the prompt once.
    `learning_rate` takes the optimiser step, counted from 0. Without samples nothing is trained.
    """
    history: list[dict[str, float]] = []
    for _ in range(epochs):
        batch: list[Sample] = []
        order = rng.permutation(len(groups))
        for position, index in enumerate(order):
            batch.extend(groups[index])
            if batch and (len(batch) >= batch_size or position + 1 == len(order)):
                history.append(learner.train_cross_entropy(batch, learning_rate(len(history))))
                batch = []
    if not history:
        return {}
    # A batch whose samples were all too long trains nothing and has no loss, nor has one that was skipped.
    names = dict.fromkeys(name for metrics in history for name in metrics)
    columns = {name: [metrics[name] for metrics in history if name in metrics] for name in names}
    totals = {name: float(sum(columns[name])) for name in ("seconds", "skipped_steps") if name in columns}
    means = {name: float(np.mean(values)) for name, values in columns.items()}
    return means | totals | {"optimiser_steps": float(len(history))}
