"""Whose fault the loss of a worker is: the item's that it had, unless something else explains it.

Losses that do not count against an item:
- the worker's node has left the cluster;
- all other workers of the pool died within `TOGETHER_SECONDS` of it (as the driver notices it), none of them with the
  same item, so the cause is not in one of them;
- the worker was dead before the item reached it. It may just not have had the time to say that it lived, so an item is
  believed this once. A worker that has just ended another item is believed to live (`WITNESS_SECONDS` in
  `actors/pool.py`);
- Ray failed otherwise than by the death, the absence or the silence of the worker.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection
from typing import Any

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    GetTimeoutError,
    NodeDiedError,
    OutOfMemoryError,
    RayError,
    WorkerCrashedError,
)

from actors.pool_records import Loss

TOGETHER_SECONDS = 2.0
WITNESS_SECONDS = 1.0
REMEMBERED = 64  # deaths a place
NODE_LEFT = "its node has left the cluster"
ALL_DIED = "all workers of the pool died at once"
DEAD_BEFORE = "it was dead before the item came"
RAY_FAILED = "no worker was lost"
_LOST = (ActorDiedError, ActorUnavailableError, NodeDiedError, OutOfMemoryError, WorkerCrashedError)


def living_nodes() -> set[str]:
    """The ids of the nodes that are in the cluster now."""
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


class Blame:
    """Remembers when the workers of a pool died, by their places, and excuses items. `nodes`: those that live now."""

    def __init__(self, nodes: Callable[[], Collection[str]] = living_nodes) -> None:
        self._nodes = nodes
        self._deaths: defaultdict[int, deque[tuple[int, float]]] = defaultdict(lambda: deque(maxlen=REMEMBERED))

    def died(self, place: int, worker: int, at: float) -> None:
        """Takes the death, or the absence, of a worker. A time-out is none: it says nothing about the others."""
        if all(worker != known for known, _ in self._deaths[place]):
            self._deaths[place].append((worker, at))

    def at_first(self, error: RayError | None, witness: Any, losses: Collection[Loss]) -> str:
        """The excuse for a loss that is known at once, else empty. `error`: of the item's call, if that was answered.
        `witness`: a ping that went to the worker just before the item, if there was one. `losses`: those before."""
        if error is not None and not isinstance(error, _LOST):
            return RAY_FAILED
        patience = 0.0 if error is None else WITNESS_SECONDS  # both errors come together, in any order
        if witness is not None and all(loss.excuse != DEAD_BEFORE for loss in losses) and _is_dead(witness, patience):
            return DEAD_BEFORE
        return ""

    def in_the_end(self, losses: Collection[Loss], places: Collection[int]) -> list[str]:
        """The excuse for each loss, empty without one, once others that came with it are known, too.

        `places`: those of the pool that are in use.
        """
        nodes = self._nodes()
        own = {loss.worker for loss in losses}
        return [loss.excuse or self._later(loss, own, nodes, places) for loss in losses]

    def _later(self, loss: Loss, own: set[int], nodes: Collection[str], places: Collection[int]) -> str:
        """`own`: all workers that the item lost."""
        if loss.node and loss.node not in nodes:
            return NODE_LEFT
        others = [place for place in places if place != loss.place]
        if not others or not self._died_near(loss.place, loss.at, own - {loss.worker}):
            return ""
        return ALL_DIED if all(self._died_near(place, loss.at, own) for place in others) else ""

    def _died_near(self, place: int, at: float, besides: Collection[int]) -> bool:
        return any(
            abs(death - at) <= TOGETHER_SECONDS for worker, death in self._deaths[place] if worker not in besides
        )


def _is_dead(witness: Any, patience: float) -> bool:
    """Whether a ping says that its actor was dead, within so many seconds."""
    if not ray.wait([witness], timeout=patience)[0]:
        return False
    try:
        ray.get(witness, timeout=1.0)
    except GetTimeoutError:
        return False
    except RayError:
        return True
    return False
