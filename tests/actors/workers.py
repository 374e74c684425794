"""The processes of a pool's workers, for tests that kill or stop them."""

from __future__ import annotations

import time

from actors.pool import ActorPool


def process_of(pool: ActorPool, actor: int | None = None) -> int:
    """The process of an actor, or of the only one of its pool. Never 0, which signals would take for this process."""
    if actor is None:
        ((actor, _),) = pool.members.items()
    deadline = time.monotonic() + 30
    while not (process := pool.members.whereabouts(actor)[1]):
        assert time.monotonic() < deadline, "it does not say where it is"
        time.sleep(0.01)
    return process
