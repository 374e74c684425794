"""What a run needs beside its evaluators: a learner, engines of its own. Imports neither torch nor ray."""

from __future__ import annotations

from configs.schema import LEARNING, RunConfig


def learns(config: RunConfig) -> bool:
    """Whether a phase of the schedule trains the policy. Otherwise the run has no learner."""
    return any(phase in LEARNING for phase in config.schedule.phases)


def asks_teachers(config: RunConfig) -> bool:
    """Whether a phase of the schedule asks the teachers of `sft.teachers`."""
    return any(phase in ("sft", "collect") for phase in config.schedule.phases)


def has_engines(config: RunConfig) -> bool:
    """Whether the run has a policy of its own, and rollout engines for it. An endpoint takes their place, and
    collecting alone needs no policy."""
    return not asks_endpoint(config) and any(phase != "collect" for phase in config.schedule.phases)


def asks_endpoint(config: RunConfig) -> bool:
    """Whether responses come from an endpoint."""
    return bool(config.rollout.endpoint.url)
