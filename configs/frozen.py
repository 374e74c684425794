"""What a run needs beside its evaluators: a learner, engines of its own. Imports neither torch nor ray."""

from __future__ import annotations

from configs.schema import LEARNING, RunConfig


def learns(config: RunConfig) -> bool:
    """Whether a phase of the schedule trains the policy. Otherwise the run has no learner."""
    return any(phase in LEARNING for phase in config.schedule.phases)


def asks_endpoint(config: RunConfig) -> bool:
    """Whether responses come from an endpoint. The run then has neither engines nor a policy of its own."""
    return bool(config.rollout.endpoint.url)
