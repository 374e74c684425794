"""One actor of a cluster asks its autoscaler for room, for all runs together.

Ray keeps one request for the whole cluster (`ray.autoscaler.sdk.request_resources`). Each call replaces the one before,
whoever made it, and the request outlives its caller. So runs tell this actor what they need, and it requests the sum. A
run that is silent for a while, as after a kill, is forgotten. The actor ends soon after its last run.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import ray
from ray.actor import ActorHandle

_log = logging.getLogger(__name__)

NAME, NAMESPACE = "capacity", "warpsmith"
"""The name of the actor, of which a cluster has one."""
TYPE_LABEL = "ray.io/accelerator-type"
"""The label with which Ray marks a node's type of GPU."""
PAUSE_SECONDS = 5.0
"""Between two requests, at least."""
SILENCE_SECONDS = 60.0
"""After which a run that says nothing is forgotten. Runs that live speak every few seconds."""
LINGER_SECONDS = 10.0
"""For which the actor stays after its last run."""
_LOOK_SECONDS = 0.5
_HEAD = "node:__internal_head__"  # a resource that Ray gives the head: other nodes come and go


class Room(NamedTuple):
    """What one actor, or one bundle of a placement group, needs on one node: CPUs and GPUs in Ray's accounts, and the
    type of the GPUs, empty for any."""

    cpus: float
    gpus: float
    kind: str = ""

    @property
    def resources(self) -> dict[str, float]:
        """In Ray's words."""
        return {name: count for name, count in (("CPU", self.cpus), ("GPU", self.gpus)) if count}

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its node."""
        return {TYPE_LABEL: self.kind} if self.kind else {}

    def __str__(self) -> str:
        gpus = f"{self.gpus:g} {self.kind or 'GPU'}" if self.gpus else ""
        return " with ".join(filter(None, (gpus, f"{self.cpus:g} CPU" if self.cpus else "")))


Rooms = Mapping[Room, int]
"""How many of each are needed."""


def describe(rooms: Rooms) -> str:
    """`2 x 1 A100 with 1 CPU, 4 x 1 CPU`; `nothing`."""
    return ", ".join(f"{count} x {room}" for room, count in sorted(rooms.items()) if count) or "nothing"


class Ledger:
    """What each run needs, and when the sum was requested. `request` replaces the cluster's request, and may raise.
    `clock`: the monotonic one."""

    def __init__(
        self,
        request: Callable[[Rooms], None],
        *,
        pause: float = PAUSE_SECONDS,
        silence: float = SILENCE_SECONDS,
        linger: float = LINGER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._request, self._clock = request, clock
        self._pause, self._silence, self._linger = pause, silence, linger
        self._needs: dict[str, tuple[float, Rooms]] = {}  # by run, with the time at which it spoke
        self._requested: Counter[Room] | None = None  # at first nobody knows: the actor before may have died
        self._next = self._clock()
        self._heard = self._clock()

    def tell(self, run: str, rooms: Rooms) -> None:
        """From now on a run needs this, in place of what it needed before."""
        self._heard = self._clock()
        self._needs[run] = (self._heard, dict(rooms))

    def leave(self, run: str) -> None:
        """A run has ended."""
        self._heard = self._clock()
        self._needs.pop(run, None)

    def check(self) -> bool:
        """Requests the sum if it has changed, but not too often. To be called often.

        Returns whether it has to be called again: whether there is a run, or one may still come, or anything is not let
        go yet. Raises what `request` raises; the next call tries again.
        """
        now = self._clock()
        for run in [run for run, (heard, _) in self._needs.items() if now - heard >= self._silence]:
            _log.warning("run %s is silent: its room is let go", run)
            del self._needs[run]
        wanted: Counter[Room] = Counter()
        for _, rooms in self._needs.values():
            wanted.update(rooms)
        wanted = +wanted
        if wanted != self._requested and now >= self._next:
            self._next = now + self._pause
            self._request(wanted)
            self._requested = wanted
        return bool(self._needs) or wanted != self._requested or now - self._heard < self._linger


def request_rooms(rooms: Rooms) -> None:
    """Replaces the cluster's request. Without rooms, everything is let go. Raises what Ray raises."""
    from ray.autoscaler.sdk import request_resources

    each = [room for room, count in sorted(rooms.items()) for _ in range(count)]
    request_resources(bundles=[room.resources for room in each], bundle_label_selectors=[room.labels for room in each])
    _log.info("the autoscaler is asked for %s", describe(rooms))


@ray.remote(num_cpus=0)
class CapacityHolder:
    """The ledger of a cluster."""

    def __init__(
        self, pause: float = PAUSE_SECONDS, silence: float = SILENCE_SECONDS, linger: float = LINGER_SECONDS
    ) -> None:
        """The times are those of `Ledger`, in seconds."""
        self._ledger = Ledger(request_rooms, pause=pause, silence=silence, linger=linger)
        self._lock = threading.Lock()
        threading.Thread(target=self._work, name="capacity", daemon=True).start()

    def tell(self, run: str, rooms: Rooms) -> None:
        """See `Ledger.tell`."""
        with self._lock:
            self._ledger.tell(run, rooms)

    def leave(self, run: str) -> None:
        """See `Ledger.leave`."""
        with self._lock:
            self._ledger.leave(run)

    def _work(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            with self._lock:
                try:
                    goes_on = self._ledger.check()
                except Exception as error:  # noqa: BLE001 - whatever it was, the next look tries again
                    _log.warning("the autoscaler was not asked: %s", error)
                    continue
                if not goes_on:
                    os._exit(0)  # a run that speaks just now finds it dead, and starts another


def find_holder(**times: float) -> ActorHandle[Any]:
    """The cluster's holder, which is started on the head if there is none. `times`: of a new one, by name."""
    maker: Any = CapacityHolder
    handle: ActorHandle[Any] = maker.options(
        name=NAME, namespace=NAMESPACE, lifetime="detached", get_if_exists=True, resources={_HEAD: 0.001}
    ).remote(**times)
    return handle
