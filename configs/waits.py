"""How long single calls of a run may take, as its configuration says. One place for pools and for `stall_minutes`.

Imports neither torch nor ray.
"""

from __future__ import annotations

from configs.frozen import asks_teachers
from configs.schema import RunConfig

STARTS = 3
"""Failed starts in a row after which a place in a pool is given up."""
POOL_START_SECONDS = 600.0
"""For a builder or an evaluator to start."""
STORE_SECONDS = 600.0
"""For the rows of a step to be stored on a file system that works."""
GRACE_SECONDS = 60.0
"""Between calls: the longest pause before an actor starts again."""


def store_seconds(config: RunConfig) -> float:
    """For the rows of a step to be stored, after the learner is done with it."""
    return max(STORE_SECONDS, config.storage.patience + GRACE_SECONDS)


def build_seconds(config: RunConfig) -> float:
    """For a builder to prepare a program: it may compile several extensions, and look at the program twice."""
    return config.evaluator.timeout or config.evaluator.limits.build_seconds * 8


def evaluation_seconds(config: RunConfig) -> float:
    """For an evaluator to judge a program, and the baselines of its task."""
    return config.evaluator.timeout or 600.0 + 10 * config.evaluator.limits.start_seconds


def longest_wait(config: RunConfig) -> tuple[str, float]:
    """The seconds for which a run may be without a move although all is well, and the key that allows them.

    A call that ends, or that is given up in time, is a move; a start of an actor is none.
    """
    waits = {
        "rollout.timeout": config.rollout.timeout,
        "rollout.start_timeout": STARTS * max(config.rollout.start_timeout, POOL_START_SECONDS),
        "learner.timeout": max(
            config.learner.timeout + config.storage.patience, config.rollout.timeout, config.learner.start_timeout
        ),
        "evaluator.timeout": config.evaluator.timeout,
        "evaluator.limits.build_seconds": build_seconds(config),
        "evaluator.limits.start_seconds": max(evaluation_seconds(config), store_seconds(config)),
        "guard.checker_timeout": config.guard.checker_timeout if config.guard.checker else 0.0,
    }
    if asks_teachers(config):
        teachers, named = config.sft.teachers, config.sft.endpoints
        asked = {f"sft.endpoints.{name}.asking": named[name].asking for name in teachers if name in named}
        if any("://" in teacher for teacher in teachers):
            asked["sft.endpoint"] = config.sft.endpoint
        waits |= {f"{key}.patience": asking.patience + asking.timeout for key, asking in asked.items()}
    if config.rollout.endpoint.url:
        asking = config.rollout.endpoint.asking
        waits["rollout.endpoint.asking.patience"] = asking.patience + asking.timeout
    key = max(waits, key=lambda name: waits[name])
    return key, waits[key] + GRACE_SECONDS
