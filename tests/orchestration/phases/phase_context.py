"""A small context for tests of phases: its buffer and configuration are real, its learner writes down its steps."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from configs.schema import RunConfig
from evaluators.records import Candidate, Estimate, Outcome, Task, Verdict
from learners.records import Rollout, Sample
from orchestration.run.answers import Answers
from orchestration.step.records import Prompt, StepResult
from prompts.buffer import ExemplarBuffer


class Learner:
    """Writes down the learning rates and samples of its steps."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, list[Sample]]] = []

    def train_cross_entropy(self, samples: list[Sample], learning_rate: float) -> dict[str, float]:
        self.steps.append((learning_rate, list(samples)))
        fits = any(sample.response_ids for sample in samples)
        return {"loss": 1.0, "seconds": 0.5} if fits else {"seconds": 0.5}

    def train_grpo(self, samples: list[Sample], learning_rate: float, *_: Any) -> dict[str, float]:
        self.steps.append((learning_rate, list(samples)))
        return {}


class Prompts:
    """Prompts that tell what they show; a response is its program's text, a byte a token."""

    def __init__(self, buffer: ExemplarBuffer) -> None:
        self.buffer = buffer

    def one_shot(self, task_id: str) -> Prompt:
        return Prompt(task_id, task_id, "one shot", (1,))

    def contrastive(self, task_id: str, below: float = math.inf, *, scores: bool = True) -> Prompt:
        exemplars = self.buffer.exemplars(task_id, "reference", below=below)
        return Prompt(task_id, task_id, " ".join(str(one.speedup) for one in exemplars), (1, 2))

    def comparison(self, prompt: Prompt, bottleneck: str, ideas: Mapping[str, str], rng: np.random.Generator) -> str:
        return prompt.text

    def repair(self, task_id: str, source: str, outcome: str, message: str) -> Prompt:
        return Prompt(task_id, f"{task_id}:repair", f"{outcome}: {message}", (1, 3), repairs=source)

    def fits_response(self, ids: list[int]) -> bool:
        return True

    def response_of(self, lesson: Mapping[str, Any]) -> str:
        return str(lesson["source"])

    def encode_response(self, text: str) -> list[int]:
        return list(text.encode())


class Judge:
    """Stands in for the pipeline where only what is asked of it matters: it judges all that came at once, in `judge`.

    `shown`: the figures that were shown while it did.
    """

    def __init__(self, judge: Callable[[Candidate], Verdict]) -> None:
        self.judge = judge
        self.shown: list[Mapping[str, float]] = []

    def on_progress(self, figures: Mapping[str, float]) -> None:
        self.shown.append(figures)

    def evaluate_arriving(
        self, arrived: Callable[[], Sequence[Candidate] | None], preset: str
    ) -> Iterator[tuple[Candidate, Verdict]]:
        while (candidates := arrived()) is not None:
            for candidate in candidates:
                yield candidate, self.judge(candidate)
            if not candidates:
                time.sleep(0.002)  # as the pipeline waits for its pools


class Context:
    """Stands in for `PhaseContext`. `memory`: what phases have committed, by key."""

    def __init__(self, config: RunConfig, tasks: int = 3, answers: Path = Path("absent/answers.jsonl")) -> None:
        self.config = config
        self.answers = Answers(answers)
        self.tasks = [Task(f"level1/{index}", 1, str(index), "") for index in range(tasks)]
        self.learner = Learner()
        self.memory: dict[str, Mapping[str, Any]] = {}
        self.prompts = Prompts(ExemplarBuffer(config.buffer, "cpu", config.seed))
        for task in self.tasks:
            for speedup in (0.8, 1.2, 1.9, 2.4):
                self.prompts.buffer.add(*judged(task.id, f"x = {speedup}", Outcome.OK, speedup), 0)

    def memory_of(self, key: str) -> Mapping[str, Any]:
        return self.memory.get(key, {})


def judged(task_id: str, source: str, outcome: Outcome, speedup: float = 0.0) -> tuple[Candidate, Verdict]:
    candidate = Candidate.propose(task_id, source, "test")
    speedups = {"eager": Estimate(speedup, speedup, speedup, 1)} if outcome is Outcome.OK else {}
    return candidate, Verdict(candidate.digest, task_id, "cpu", outcome, speedups=speedups)


def step_result(*groups: list[tuple[Outcome, float]]) -> StepResult:
    """A step whose groups, one a task, have candidates of these outcomes and speed-ups."""
    result = StepResult()
    for task, group in enumerate(groups):
        for index, (outcome, speedup) in enumerate(group):
            candidate, verdict = judged(f"level1/{task}", f"x = {index}", outcome, speedup)
            result.candidates[candidate.digest], result.verdicts[candidate.digest] = candidate, verdict
            result.rollouts.append(
                Rollout(
                    f"level1/{task}", f"level1/{task}", "", "", (1,), (2,), (0.0,), 0,
                    candidate_digest=candidate.digest, outcome=str(outcome),
                )
            )  # fmt: skip
    return result
