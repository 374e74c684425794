"""Reward of a verdict: the speed-up and nothing else (CUDA-L1 section 2.4)."""

from __future__ import annotations

from configs.schema import RewardConfig
from evaluators.records import Outcome, Verdict


def reward_of(verdict: Verdict, config: RewardConfig) -> float | None:
    """The speed-up for `ok` (over eager, or over the best baseline), cut at `config.max`; 0 for failures.

    None is neutral: for `suspect`, which must neither gain nor lose, and for `infra`, which is ours.
    """
    if verdict.outcome in (Outcome.SUSPECT, Outcome.INFRA):
        return None
    if verdict.outcome is not Outcome.OK:
        return 0.0
    name = "eager" if config.baseline == "eager" else verdict.best_baseline
    estimate = verdict.speedups.get(name or "")
    return min(estimate.value, config.max) if estimate else None
