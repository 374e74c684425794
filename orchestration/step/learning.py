"""Trains on a step while the steps after it are generated and judged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from learners.records import Rollout
from orchestration.fleet.placement import LEARNER
from orchestration.fleet.roles import Roles
from orchestration.step.pipeline import Pipeline

_log = logging.getLogger(__name__)

Training = Callable[[], dict[str, float]]
"""Trains the policy on what is written for it already, and returns the learner's metrics. It is called in a thread of
its own while other steps go on, so it must use nothing that belongs to one thread (`prompts.owner`)."""


def learn_beside(pipeline: Pipeline, roles: Roles, training: Training, rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Learns from a step's rollouts, and returns the learner's metrics as `train/...`.

    Beside them stand `staleness` and `staleness_max`, the policy versions between sampling and now, and
    `utilisation/...`, the share of the time since the last step in which each role had work. Warns of optimiser steps
    that were skipped. A run without a learner has the last alone.
    """
    if not roles.learns:
        return roles.utilisation()
    stale = [roles.version - rollout.policy_version for rollout in rollouts]
    pipeline.give_turn(LEARNER)
    with roles.learner_alone():
        metrics = pipeline.meanwhile(training)
    if skipped := sum(value for name, value in metrics.items() if name.endswith("skipped_steps")):
        _log.warning("%d optimiser step(s) skipped, because the gradient was not finite", skipped)
    learned = {f"train/{name}": value for name, value in metrics.items()}
    if stale:
        learned |= {"staleness": sum(stale) / len(stale), "staleness_max": float(max(stale))}
    return learned | roles.utilisation()
