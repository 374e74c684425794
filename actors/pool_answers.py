"""Answers of actors: open calls are looked at together, many at a time.

Ray hands over an answer in two ways: it calls back from a thread of its own, or one waits for a list of calls. Each
callback makes the two threads take turns, which costs nearly as much processor time as the call. A look at a list takes
time for each open call, and finds all that were answered. So the driver looks seldom while many calls are open:
`LOOK_SECONDS` for each of them pass between two looks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import RayError

Label = TypeVar("Label")
GATHER_SECONDS = 0.002
"""After the first answer that a driver waited for, until it looks: others that come with it are handled together."""
LOOK_SECONDS = 1.5e-5
"""For each open call, between two looks: several times what a look takes."""


class Answers(Generic[Label]):
    """The answers to calls, each under the label of its call. Used by one thread only."""

    def __init__(self) -> None:
        self._open: dict[ray.ObjectRef[Any], Label] = {}
        self._next_look = 0.0
        self.is_busy = False
        """Whether the last look found answers: then the next ones are near, and nobody need wait for the first."""

    def expect(self, call: ray.ObjectRef[Any], label: Label) -> None:
        """From now on `take` gives the answer to a call."""
        self._open[call] = label

    def drop(self, call: ray.ObjectRef[Any]) -> None:
        """Waits for a call's answer no longer."""
        self._open.pop(call, None)

    @property
    def calls(self) -> list[ray.ObjectRef[Any]]:
        """Those whose answers nobody has taken yet."""
        return list(self._open)

    def look(self) -> None:
        """Lets the next `take` look at the calls, whenever the last look was."""
        self._next_look = 0.0

    def take(self) -> list[tuple[Label, Any]]:
        """(label, result or RayError) of what came since the last time, in the order of the calls; nothing if the last
        look was just now. Raises any other exception: it says nothing about an actor."""
        now = time.monotonic()
        if not self._open:
            self.is_busy = False
            return []
        if now < self._next_look:
            return []
        calls = self.calls
        done = ray.wait(calls, num_returns=len(calls), timeout=0)[0]
        self._next_look, self.is_busy = now + LOOK_SECONDS * len(calls), bool(done)
        return list(zip([self._open.pop(call) for call in done], _results(done), strict=True))

    def clear(self) -> None:
        """Forgets all calls."""
        self._open.clear()
        self.is_busy = False


def _results(calls: list[ray.ObjectRef[Any]]) -> list[Any]:
    """Results and RayErrors of calls that were answered."""
    try:
        return list(ray.get(calls))
    except RayError:
        return [_result(call) for call in calls]


def _result(call: ray.ObjectRef[Any]) -> Any:
    try:
        return ray.get(call)
    except RayError as error:
        return error


def wait_for_answers(places: Iterable[Answers[Any]], timeout: float) -> None:
    """Returns once one of them has an answer, or after `timeout` seconds."""
    places = list(places)
    calls = [call for place in places for call in place.calls]
    if not calls:
        time.sleep(timeout)
        return
    gather = max(GATHER_SECONDS, LOOK_SECONDS * len(calls))
    if any(place.is_busy for place in places) or ray.wait(calls, num_returns=1, timeout=timeout)[0]:
        time.sleep(min(gather, timeout))
        for place in places:
            place.look()
