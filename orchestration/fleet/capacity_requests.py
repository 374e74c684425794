"""Asks the cluster's autoscaler for what the run's actors need, before they are started (`ray.request_capacity`).

An actor that waits for its node makes an autoscaler start one, too, but only when it is created, and roles are created
one after another. A request is made for all of them at once, and keeps their nodes while an actor starts again. If it
is more than the cluster can ever have, Ray ignores all of it. It never makes a run wait, or fail.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import ray

from actors.capacity_holder import Rooms, describe, find_holder
from actors.pool_manager import one_line
from orchestration.fleet.capacity import Capacity

_log = logging.getLogger(__name__)

_SECONDS = 5.0  # between two looks at what is needed
_ANSWER_SECONDS = 30.0  # for the cluster's holder, which may have to start
_CLOSE_SECONDS = 10.0


class CapacityRequests:
    """A background thread that tells the cluster's holder what a run needs, until it is closed."""

    def __init__(self, run: str, needs: Callable[[], Rooms], *, scales: Callable[[], bool] | None = None) -> None:
        """`run`: a name that no other run of the cluster has, and that a resumed run has again. `needs` is asked from
        the thread. `scales`: whether the cluster has an autoscaler that takes requests by type of GPU."""
        self._run, self._needs, self._scales = run, needs, scales or has_autoscaler
        self._holder: Any = None
        self._told: Rooms = {}
        self._warned = set[str]()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="capacity requests", daemon=True)

    def start(self) -> None:
        """Begins to ask, at once."""
        self._thread.start()

    def close(self) -> None:
        """Lets everything go that this run asked for. Waits some seconds at most; what does not answer then lets it go
        by itself, as after a kill."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)
        if self._holder is not None:
            self._call("leave", self._run, timeout=_CLOSE_SECONDS)

    def look(self) -> None:
        """Tells what is needed now, if the cluster scales."""
        if self._holder is None and not self._scales():
            self._warn("the cluster has no autoscaler of Ray's version 2, so nothing is asked for in advance")
            return
        needs = self._needs()
        if self._holder is None:
            self._holder = find_holder()
        if self._call("tell", self._run, needs) and needs != self._told:
            self._told = needs
            _log.info("the cluster is asked for %s", describe(needs))
        if Capacity.look().refuses_request:
            self._warn("the runs need more than the cluster can ever have, so its autoscaler ignores what they ask for")

    def _call(self, method: str, *arguments: Any, timeout: float = _ANSWER_SECONDS) -> bool:
        """Whether the holder has answered. If not, another look finds it again, or starts one."""
        try:
            ray.get(getattr(self._holder, method).remote(*arguments), timeout=timeout)
        except Exception as error:  # noqa: BLE001 - a run goes on without
            self._holder = None
            self._warn(f"the cluster was not asked for capacity ({one_line(error)})")
            return False
        return True

    def _warn(self, text: str) -> None:
        (_log.debug if text in self._warned else _log.warning)("ray.request_capacity: %s", text)
        self._warned.add(text)

    def _work(self) -> None:
        while not self._closing.is_set():
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - nothing here may end a run
                self._warn(f"the cluster was not asked for capacity ({one_line(error)})")
            self._closing.wait(_SECONDS)


def has_autoscaler() -> bool:
    """Whether Ray's autoscaler of version 2 runs in this cluster. Version 1 would drop the types of GPUs."""
    from ray.autoscaler.v2.utils import is_autoscaler_v2

    return is_autoscaler_v2(fetch_from_server=True)
