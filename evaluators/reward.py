"""Reward of a verdict: a function of its speed-up and of what the prompt showed (CUDA-L1 section 2.4).

`reward.worth` chooses the function, `reward.estimate` the speed-up. The code that rewards and the code that chooses
exemplars both ask here. Reports and the scores of exemplars show the point, whatever is rewarded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from configs.schema import RewardConfig
from evaluators.records import Outcome, Verdict

FASTER = 1.01
"""A program is faster if its speed-up is above this (CUDA-L1 counts the same way)."""

_FINEST = 1e-9  # a resolution that rounds nothing


@dataclass(frozen=True)
class Worth:
    """The meaning of one value of `reward.worth`. The defaults are CUDA-L1's."""

    offset: float = 0.0
    """Taken off the speed-up, but the reward never falls below 0."""
    copy_share: float = 1.0
    """The share of its reward that a program keeps if its own prompt shows it: the reference, or an exemplar."""
    over_fastest_shown: bool = False
    """Whether the speed-up is over the fastest program that the prompt shows, instead of over the baseline."""
    shows_only_slower: bool = False
    """Whether contrastive prompts of contrastive RL show only programs that are slower than the task's best known
    program, as those of SFT show only programs that are slower than the lesson. Something faster than all that is shown
    then certainly exists."""


WORTHS: Mapping[str, Worth] = {
    "speedup": Worth(),
    # A program as fast as the reference gets 0.1, and the reference itself 0.02. Handing it back is then no longer
    # nearly as good as writing a faster program.
    "gain": Worth(offset=0.9, copy_share=0.2),
    # A shown program gets nothing, however it is disguised.
    "beat_shown": Worth(offset=1.0, over_fastest_shown=True, shows_only_slower=True),
}


def worth_of(config: RewardConfig) -> Worth:
    """The meaning of `config.worth`."""
    return WORTHS[config.worth]


def rewarded_speedup(verdict: Verdict, config: RewardConfig) -> float | None:
    """The speed-up over `config.baseline` that is rewarded; None without one.

    It is the estimate itself or, with `config.estimate: low`, the lower end of its 95 % interval, but not below 0. What
    noise alone may have added is then not rewarded.
    """
    estimate = verdict.estimate_over(config.baseline)
    if estimate is None:
        return None
    return max(estimate.low, 0.0) if config.estimate == "low" else estimate.value


def reward_of(
    verdict: Verdict, config: RewardConfig, *, fastest_shown: float = 1.0, is_copy: bool = False
) -> float | None:
    """The reward of a program with this verdict; None is neutral.

    `ok` gets its `rewarded_speedup`, rounded to whole powers of 1 + `config.resolution`, at most `config.max`, as
    `config.worth` counts it. `suspect` is neutral, because it must neither gain nor lose, and so is `infra`, because
    that is our own failure. Every other outcome gets 0.

    `fastest_shown`: the speed-up, a point, of the fastest program that the prompt shows; the reference's is 1.
    `is_copy`: whether the prompt shows this very program.
    """
    if verdict.outcome in (Outcome.SUSPECT, Outcome.INFRA):
        return None
    if verdict.outcome is not Outcome.OK:
        return 0.0
    speedup = rewarded_speedup(verdict, config)
    if speedup is None:
        return None
    worth = worth_of(config)
    if worth.over_fastest_shown:
        speedup /= fastest_shown
    if config.resolution > _FINEST and speedup > 0:
        step = math.log1p(config.resolution)
        speedup = math.exp(round(math.log(speedup) / step) * step)
    reward = max(min(speedup, config.max) - worth.offset, 0.0)
    return reward * worth.copy_share if is_copy else reward


def reward_over(
    verdicts: Sequence[Verdict],
    over: str,
    config: RewardConfig,
    *,
    fastest_shown: float = 1.0,
    is_copy: bool = False,
) -> float | None:
    """The reward of a program that was judged on several architectures; None is neutral.

    `verdicts`: one of each, that on `evaluator.arch` first. `over`: as `evaluation.reward`, that is `first`,
    `mean` or `worst`. A program that is a hack anywhere gets 0. Otherwise it is neutral if
    any of its rewards is.
    """
    if over == "first":
        verdicts = verdicts[:1]
    if any(verdict.outcome is Outcome.HACK for verdict in verdicts):
        return 0.0
    rewards = [reward_of(verdict, config, fastest_shown=fastest_shown, is_copy=is_copy) for verdict in verdicts]
    known = [reward for reward in rewards if reward is not None]
    if len(known) < len(rewards):
        return None
    return min(known) if over == "worst" else sum(known) / len(known)


def is_success(verdict: Verdict, config: RewardConfig, min_speedup: float) -> bool:
    """Whether a program is `ok` and the speed-up that is rewarded is at least `min_speedup`."""
    return verdict.succeeded and (rewarded_speedup(verdict, config) or 0.0) >= min_speedup
