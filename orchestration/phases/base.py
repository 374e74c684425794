"""What the driver asks of a phase: which prompts a step needs, and what to learn from their judged rollouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from learners.records import Rollout, Sample
from orchestration.run.state import phase_key
from orchestration.step.gathering import Gathering
from orchestration.step.records import Prompt, StepResult

if TYPE_CHECKING:
    from orchestration.session import Session


class Phase(ABC):
    """One phase of one cycle. Keeps what must survive a restart in `memory`, plain JSON that the state carries."""

    name: ClassVar[str]
    can_be_shorter: ClassVar[bool] = True
    """Whether the phase is complete where a run that is asked to end early leaves it."""

    def __init__(self, session: Session, cycle: int) -> None:
        self.session = session
        self.cycle = cycle
        self.memory: dict[str, object] = {}

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

    def restore(self, memory: Mapping[str, object]) -> None:
        """Continues with what was committed."""
        self.memory = dict(memory)

    def to_commit(self) -> dict[str, object]:
        """What a resume is given: a copy of the memory, which the phase goes on with."""
        return deepcopy(self.memory)

    def begin(self) -> None:  # noqa: B027 - a phase may have nothing to begin with
        """Called before the first step, and never on a resume in the middle."""

    def remaining(self, done: int) -> Iterator[int]:
        """The steps still to take; a phase that ends by a criterion stops here."""
        return iter(range(done, self.steps))

    def prompts(self, step: int) -> list[Prompt]:
        """What to generate from in this step; empty for none."""
        return []

    @property
    def samples(self) -> int:
        """Responses per prompt."""
        return 1

    def gather(self, step: int) -> StepResult:
        """The step's judged rollouts: by default, generated from the prompts by the current policy."""
        config = self.session.config
        wanted = Gathering(
            self.prompts(step),
            samples=self.samples,
            temperature=config.rollout.temperature,
            preset=config.evaluator.preset,
        )
        return self.session.pipeline.run(wanted)

    def credit(self, result: StepResult) -> list[Rollout]:
        """The rollouts with rewards and advantages."""
        return result.rollouts

    @abstractmethod
    def learn(self, step: int, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """Trains the policy on the step; returns the learner's metrics."""

    def rng(self, step: int, purpose: str = "") -> np.random.Generator:
        """Random numbers that depend on seed, phase, step and purpose alone, so that a redone step repeats."""
        return np.random.default_rng([self.session.config.seed, step, *f"{self.key}{purpose}".encode()])


def response_of(session: Session, lesson: Mapping[str, Any]) -> str:
    """The response that a verified program of a teacher is learnt as."""
    return session.renderer.response(lesson["source"], lesson["analysis"], lesson["design"])


def train_in_batches(
    session: Session,
    groups: Sequence[Sequence[Sample]],
    *,
    epochs: int,
    batch_size: int,
    learning_rate: Callable[[int], float],
    rng: np.random.Generator,
) -> dict[str, float]:
    """Cross-entropy over shuffled batches of about `batch_size` samples; the mean metrics over the optimiser steps.

    `groups` hold the samples of one prompt each, which stay together: the learner then computes the prompt once.
    `learning_rate` is of the optimiser step, counted from 0. No samples train nothing.
    """
    history: list[dict[str, float]] = []
    for _ in range(epochs):
        batch: list[Sample] = []
        order = rng.permutation(len(groups))
        for position, index in enumerate(order):
            batch.extend(groups[index])
            if batch and (len(batch) >= batch_size or position + 1 == len(order)):
                history.append(session.learner.train_cross_entropy(batch, learning_rate(len(history))))
                batch = []
    if not history:
        return {}
    # A batch whose samples were all too long trains nothing and has no loss.
    names = dict.fromkeys(name for metrics in history for name in metrics)
    return {name: float(np.mean([metrics[name] for metrics in history if name in metrics])) for name in names} | {
        "optimiser_steps": float(len(history)),
        "seconds": float(sum(metrics["seconds"] for metrics in history)),
    }
