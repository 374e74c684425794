"""How answers of actors reach the driver: Ray's thread puts them down and rings; nobody looks at all open calls.

Waiting for the next answer takes the same time with one call open as with thousands.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import RayError

Label = TypeVar("Label")
GATHER_SECONDS = 0.002
"""After the first answer that a driver waited for, until it looks: others that come with it are handled together."""


class Answers(Generic[Label]):
    """The answers to calls, each under the label of its call, in the order in which they came."""

    def __init__(self) -> None:
        self._arrived: deque[tuple[Label, Future[Any]]] = deque()
        self._bells: tuple[threading.Event, ...] = ()

    def __len__(self) -> int:
        """Answers that nobody has taken yet."""
        return len(self._arrived)

    def expect(self, call: ray.ObjectRef[Any], label: Label) -> None:
        """Takes the answer to a call when it comes. May be called from one thread only, as the methods below."""
        call.future().add_done_callback(partial(self._arrive, label))

    def take(self) -> list[tuple[Label, Any]]:
        """(label, result or RayError) of what came since the last time. Raises any other exception: it says nothing
        about an actor."""
        taken: list[tuple[Label, Any]] = []
        for _ in range(len(self._arrived)):
            label, future = self._arrived.popleft()
            try:
                taken.append((label, future.result()))
            except RayError as error:
                taken.append((label, error))
        return taken

    def ring(self, bell: threading.Event) -> None:
        """From now on the next answer sets this event."""
        self._bells = (*self._bells, bell)

    def ring_no_more(self, bell: threading.Event) -> None:
        """Ends `ring`."""
        self._bells = tuple(each for each in self._bells if each is not bell)

    def clear(self) -> None:
        """Forgets what has come."""
        self._arrived.clear()

    def _arrive(self, label: Label, future: Future[Any]) -> None:
        """Called from Ray's thread. The answer is put down before the bells are looked at, as a driver hangs up its
        bell before it looks at the answers; so one of them sees the other."""
        self._arrived.append((label, future))
        for bell in self._bells:
            bell.set()


def wait_for_answers(places: Iterable[Answers[Any]], timeout: float) -> None:
    """Returns once one of them has an answer, or after `timeout` seconds."""
    bell, places = threading.Event(), list(places)
    for place in places:
        place.ring(bell)
    try:
        if not any(places) and bell.wait(timeout):
            time.sleep(GATHER_SECONDS)
    finally:
        for place in places:
            place.ring_no_more(bell)
