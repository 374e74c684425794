"""From rewards to advantages: smoothing with running statistics (CUDA-L1, arXiv 2507.14111, section 3.2), then
normalisation within each group (section 2.4.5). Pure arithmetic, without engine or I/O. Never reorders the rewards of a
task.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, pstdev

import torch
from torch import Tensor

# A deviation below this share of the rewards' magnitude is the rounding error of equal rewards, not a signal.
_RELATIVE_NOISE = 1e-9
DECAY = 0.9
"""The weight of the earlier rewards in the running statistics when a step's rewards are added."""


def group_advantages(rewards: Tensor, *, scale: bool = True, epsilon: float = 1e-6) -> Tensor:
    """Normalises each group of rewards to zero mean and unit deviation (CUDA-L1 section 2.4.5).

    rewards: [groups, samples], after smoothing. Returns the same shape. A group whose rewards are all equal carries no
    signal: its advantages are zero, not noise divided by epsilon. Without `scale` rewards are only centred (Dr. GRPO,
    arXiv 2503.20783: division by the deviation favours tasks that are nearly always, or hardly ever, solved).
    """
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    deviation = centred.pow(2).mean(dim=1, keepdim=True).sqrt()
    scaled = centred / deviation.clamp_min(epsilon) if scale else centred
    return torch.where(deviation > epsilon, scaled, torch.zeros_like(centred))


@dataclass(frozen=True)
class Moments:
    """Mean and variance of the rewards so far, in units of the reward and their square."""

    mean: float
    variance: float

    @property
    def deviation(self) -> float:
        """The standard deviation; 0 if it is only rounding error."""
        deviation = math.sqrt(self.variance)
        return deviation if deviation > _RELATIVE_NOISE * abs(self.mean) else 0.0


class RunningStatistics:
    """Exponentially weighted mean and variance of the rewards of each key (a task).

    The first batch of a key sets them. Each later batch mixes in with weight `1 - decay`: mean and variance become
    those of the mixture of the two distributions. Both therefore follow any shift and scale of the rewards exactly.
    """

    def __init__(self, decay: float = DECAY) -> None:
        if not 0.0 <= decay <= 1.0:
            raise ValueError(f"the decay of running statistics must lie in [0, 1], got {decay}")
        self.decay = decay
        self._moments: dict[str, Moments] = {}

    def update(self, key: str, rewards: Iterable[float]) -> None:
        """Adds one step's rewards of `key`. Without rewards nothing changes.

        Raises ValueError if a reward is not finite, because it would spoil every later step.
        """
        values = list(rewards)
        for value in values:
            if not math.isfinite(value):
                raise ValueError(f"a reward of {key} is {value}; rewards must be finite (cut them at reward.max)")
        if not values:
            return
        mean = fmean(values)
        variance = fmean((value - mean) ** 2 for value in values)
        before = self._moments.get(key)
        if before is not None:
            old, new = self.decay, 1.0 - self.decay
            gap = before.mean - mean
            mean = old * before.mean + new * mean
            variance = old * before.variance + new * variance + old * new * gap**2
        self._moments[key] = Moments(mean, variance)

    def of(self, key: str) -> Moments:
        """The moments of `key`. Raises KeyError before its first `update`."""
        return self._moments[key]

    def state_dict(self) -> dict[str, dict[str, float]]:
        """The moments as plain data for JSON."""
        return {key: asdict(moments) for key, moments in self._moments.items()}

    def load_state_dict(self, state: Mapping[str, Mapping[str, float]]) -> None:
        """Restores the moments that `state_dict` returned."""
        self._moments = {key: Moments(value["mean"], value["variance"]) for key, value in state.items()}


def smooth_rewards(rewards: Sequence[float], moments: Moments, clip: float) -> list[float]:
    """clip((r - mu) / sigma, -clip, clip) of each reward (CUDA-L1 section 3.2, equation 6, with clip = 1.5).

    Non-decreasing in the reward, so no two rewards change places. If the deviation is 0, a reward at the mean gives 0,
    and any other reward the bound on its side.
    """
    tolerance = _RELATIVE_NOISE * abs(moments.mean)
    smoothed = []
    for reward in rewards:
        centred = reward - moments.mean
        if moments.deviation > 0.0:
            smoothed.append(min(max(centred / moments.deviation, -clip), clip))
        else:
            smoothed.append(0.0 if abs(centred) <= tolerance else math.copysign(clip, centred))
    return smoothed


def advantages_of(
    rewards: Sequence[Sequence[float | None]],
    keys: Sequence[str],
    statistics: RunningStatistics,
    clip: float,
    *,
    scale: bool = True,
    negative_weight: float = 1.0,
    programs: Sequence[Sequence[str]] | None = None,
) -> list[list[float]]:
    """Advantages of one step's groups, in the shape of `rewards`; `keys[i]` names the task of group i.

    The step's rewards, zeros of failures included, are first added to `statistics`. So the first step is normalised by
    its own rewards. `scale`: see `group_advantages`. Advantages below 0 are multiplied by `negative_weight`. With less
    than 1, responses that are better than their group count for more than those that are worse (arXiv 2506.01347 weighs
    the two). A reward of None is neutral (a suspect verdict): it stands for the group's mean, its advantage is 0, and
    it does not enter the statistics. With `programs`, in the same shape, duplicates share (`share_of_duplicates`).
    Raises ValueError unless there is one key for each group.
    """
    if len(rewards) != len(keys):
        raise ValueError(f"advantages need one key for each group: {len(rewards)} groups, {len(keys)} keys")
    if programs is not None:
        distinct = [distinct_of(group, of) for group, of in zip(rewards, programs, strict=True)]
        made = advantages_of(distinct, keys, statistics, clip, scale=scale, negative_weight=negative_weight)
        return [share_of_duplicates(values, of) for values, of in zip(made, programs, strict=True)]
    known = [[reward for reward in group if reward is not None] for group in rewards]
    observed: dict[str, list[float]] = {}
    for key, values in zip(keys, known, strict=True):
        observed.setdefault(key, []).extend(values)
    for key, values in observed.items():
        statistics.update(key, values)

    advantages = []
    for group, key, values in zip(rewards, keys, known, strict=True):
        if not values:
            advantages.append([0.0] * len(group))
            continue
        smoothed = torch.tensor([smooth_rewards(values, statistics.of(key), clip)], dtype=torch.float64)
        weighed = group_advantages(smoothed, scale=scale)[0]
        normalised = iter(torch.where(weighed < 0, negative_weight * weighed, weighed).tolist())
        advantages.append([0.0 if reward is None else next(normalised) for reward in group])
    return advantages


def distinct_of(rewards: Sequence[float | None], programs: Sequence[str]) -> list[float | None]:
    """The rewards of a group's distinct programs, in the order in which these first occur."""
    first: dict[str, float | None] = {}
    for program, reward in zip(programs, rewards, strict=True):
        first.setdefault(program, reward)
    return list(first.values())


def share_of_duplicates(advantages: Sequence[float], programs: Sequence[str]) -> list[float]:
    """The advantages of a group's responses, from those of its distinct programs (`distinct_of`).

    The copies of a program share its advantage equally. So a program moves the policy as far as if it had been sampled
    once, and a group's advantages still sum to what those of its programs sum to, which is 0 after normalisation: the
    mean over programs stays the baseline. Inverse-propensity weights do the same for rewards (DRA-GRPO, arXiv
    2505.09655, by likeness instead of identity). If each copy had the whole advantage instead, the frequent programs
    would be learnt fastest, and the policy would collapse on them.
    """
    by_program = dict(zip(dict.fromkeys(programs), advantages, strict=True))
    counts = Counter(programs)
    return [by_program[program] / counts[program] for program in programs]


def flag_advantages(
    flags: Sequence[float | None], weight: float, *, scale: bool = True, programs: Sequence[str] | None = None
) -> list[float]:
    """Advantages of a group in which a response is either flagged (1) or not (0), times `weight`.

    Normalisation makes any reward as large as any other, so a reward that is to stay small must weigh its advantages
    instead. None is neutral: its advantage is 0. `programs`: see `advantages_of`.
    """
    if programs is not None:
        distinct = flag_advantages(distinct_of(flags, programs), weight, scale=scale)
        return share_of_duplicates(distinct, programs)
    known = torch.tensor([[flag for flag in flags if flag is not None]], dtype=torch.float64)
    if not known.numel():
        return [0.0] * len(flags)
    normalised = iter((weight * group_advantages(known, scale=scale)[0]).tolist())
    return [0.0 if flag is None else next(normalised) for flag in flags]


def deviation_of(rewards: Sequence[float | None], moments: Moments, clip: float) -> float:
    """How much a group's rewards vary: the deviation of the smoothed ones, from 0 to `clip`."""
    known = [reward for reward in rewards if reward is not None]
    return pstdev(smooth_rewards(known, moments, clip)) if known else 0.0
