"""The reward of a verdict: the speed-up and nothing else (CUDA-L1 section 2.4).

A verdict that is doubted must neither gain nor lose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from configs.schema import RewardConfig
from evaluators.records import Outcome, Verdict

FASTER = 1.01
"""A program is faster when its speed-up is above this (CUDA-L1 counts the same)."""


@dataclass(frozen=True)
class Worth:
    """What a value of `reward.worth` stands for."""

    offset: float = 0.0
    """Taken off the speed-up, but never below 0."""
    copy_share: float = 1.0
    """The share of its reward that a program keeps if its own prompt shows it (the reference or an exemplar)."""
    over_fastest_shown: bool = False
    """The speed-up is over the fastest program that the prompt shows, instead of over the reference."""
    shows_only_slower: bool = False
    """Contrastive prompts show only programs that are slower than the best known one (in contrastive RL), or than the
    lesson (in SFT)."""


WORTHS: Mapping[str, Worth] = {
    "speedup": Worth(),
    "gain": Worth(offset=0.9, copy_share=0.2),
    "beat_shown": Worth(offset=1.0, over_fastest_shown=True, shows_only_slower=True),
}

_FINEST = 1e-9  # a resolution that rounds nothing


def reward_of(verdict: Verdict, config: RewardConfig, fastest_shown: float = 1.0) -> float | None:
    """The speed-up of an `ok` verdict, and 0 for a failure.

    The speed-up is rounded to whole powers of 1 + `config.resolution`, cut at `config.max`, and reduced by
    `config.offset`. With `config.beat_exemplars` it is over a program that is `fastest_shown` times as fast as the
    baseline.

    None is neutral: for `suspect`, which must neither gain nor lose, for `infra`, which is our own failure, and for a
    verdict without the baseline.
    """
    if verdict.outcome in (Outcome.SUSPECT, Outcome.INFRA):
        return None
    if verdict.outcome is not Outcome.OK:
        return 0.0
    speedup = verdict.speedup_over(config.baseline)
    if speedup is None:
        return None
    if config.beat_exemplars:
        speedup /= fastest_shown
    if config.resolution > _FINEST and speedup > 0:
        step = math.log1p(config.resolution)
        speedup = math.exp(round(math.log(speedup) / step) * step)
    return max(min(speedup, config.max) - config.offset, 0.0)


def is_success(verdict: Verdict, config: RewardConfig, min_speedup: float) -> bool:
    """Whether a program is `ok` and its speed-up at least `min_speedup`."""
    return verdict.succeeded and (verdict.speedup_over(config.baseline) or 0.0) >= min_speedup


def new_reward_of(
    verdict: Verdict, config: RewardConfig, *, fastest_shown: float = 1.0, is_copy: bool = False
) -> float | None:
    if verdict.outcome in (Outcome.SUSPECT, Outcome.INFRA):
        return None
    if verdict.outcome is not Outcome.OK:
        return 0.0
    speedup = verdict.speedup_over(config.baseline)
    if speedup is None:
        return None
    worth = WORTHS[config.worth]
    if worth.over_fastest_shown:
        speedup /= fastest_shown
    if config.resolution > _FINEST and speedup > 0:
        step = math.log1p(config.resolution)
        speedup = math.exp(round(math.log(speedup) / step) * step)
    reward = max(min(speedup, config.max) - worth.offset, 0.0)
    return reward * worth.copy_share if is_copy else reward
