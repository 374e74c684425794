"""How long a step takes: generation, judging and learning, as far as they are known.

Judging is simulated: candidates are drawn from measured verdicts, come in while responses are generated, and go to the
first evaluator of their type that is free. So the last candidates of a step, for which most evaluators wait, count.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from configs.schema import RunConfig
from orchestration.plan.earlier import Pace
from orchestration.plan.sizes import Sizes

_DRAWS = 20


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step. `judging` is from the first response to the last verdict; what is generated meanwhile is part
    of it, unless roles take turns. `generation`, `learning` and `push` are 0 if they are not known."""

    generation: float
    judging: float
    learning: float
    push: float
    total: float


@dataclass(frozen=True)
class Load:
    """What a step brings: `responses`, of which so many are `candidates` for evaluators."""

    responses: int
    candidates: int


def judging_seconds(
    sizes: Sizes,
    types: Sequence[str],
    evaluators: Mapping[str, int],
    candidates: int,
    arriving: float = 0.0,
    *,
    draws: int = _DRAWS,
    seed: int = 0,
) -> float:
    """Seconds until the last verdict on so many candidates that come in evenly over `arriving` seconds.

    `types`: the type that judges each slice. `evaluators`: how many there are of each type. The mean over `draws`.
    """
    rng, total = np.random.default_rng(seed), 0.0
    for _ in range(draws):
        slices = rng.choice(len(sizes.weights), size=candidates, p=sizes.weights)
        free = {name: [0.0] * evaluators[name] for name in set(types)}
        last = arriving
        for number, chosen in enumerate(slices):
            name = types[chosen]
            drawn = sizes.seconds[name][chosen]
            seconds = float(drawn[rng.integers(len(drawn))])
            start = max(free[name][0], arriving * number / max(candidates, 1))
            heapq.heapreplace(free[name], start + seconds)
            last = max(last, start + seconds)
        total += last
    return total / draws


def step_time(
    config: RunConfig, sizes: Sizes, types: Sequence[str], evaluators: Mapping[str, int], load: Load,
    pace: Pace | None, *, learns: bool = True, overlaps: bool = False,
) -> StepTime:  # fmt: skip
    """The seconds of a step. `learns`: false for an assessment. `overlaps`: the next steps are generated and judged
    while this one is learnt (`contrastive_rl.max_staleness`)."""
    generation, learning, push = of_training(config, load, pace) if pace else (0.0, 0.0, 0.0)
    if not learns:
        learning = push = 0.0
    share = config.placement.share
    if share == "all":
        judging = judging_seconds(sizes, types, evaluators, load.candidates)
        return StepTime(generation, judging, learning, push, generation + judging + learning + push)
    judging = judging_seconds(sizes, types, evaluators, load.candidates, generation)
    if not overlaps:
        return StepTime(generation, judging, learning, push, judging + learning + push)
    # In the long run the busiest role decides. The end of a step, at which evaluators wait, overlaps with the next one.
    steady = max(_work(sizes, types, name, load.candidates) / evaluators[name] for name in set(types))
    training = generation + learning if share == "training" else max(generation, learning)
    return StepTime(generation, judging, learning, push, max(training + push, steady))


def of_training(config: RunConfig, load: Load, pace: Pace) -> tuple[float, float, float]:
    """Seconds of generation, learning and the push of weights."""
    tokens = load.responses * pace.response_tokens
    generation = tokens / (pace.engine_tokens * config.rollout.engines)
    return generation, load.responses * pace.learn_seconds / config.learner.ranks, pace.push_seconds


def _work(sizes: Sizes, types: Sequence[str], accelerator: str, candidates: int) -> float:
    """Seconds of judging that a step brings to all evaluators of a type."""
    means = [sizes.seconds[name][number].mean() * (name == accelerator) for number, name in enumerate(types)]
    return candidates * float(sizes.weights @ means)
