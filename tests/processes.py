"""Further processes for tests: forked from one that has imported torch and the rooms they use, which takes seconds."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

_IMPORTED = [
    "actors.weight_transport",
    "evaluators.compile.artifacts",
    "evaluators.guard.cases",
    "evaluators.stored.baselines",
]


def forks() -> ForkServerContext:
    """The context of such processes. They share nothing with the test's own process, as if they were spawned."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context
