"""A pool that grows with its queue and shrinks to nothing: its GPUs are free for others while nobody needs them.

An actor that asks for a GPU is what makes an autoscaler start a node, and one that ends is what lets it go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actors.pool_members import Members

_LOOKS = 4  # for idle actors, in the time after which one ends


class Scaling:
    """Starts an actor for each item that has none, and ends actors without an item for `idle_seconds`.

    0 seconds: the pool never changes its size. `is_idle`: whether an actor has nothing to do.
    """

    def __init__(self, idle_seconds: float, members: Members, is_idle: Callable[[int], bool]) -> None:
        self._idle_seconds, self._members, self._is_idle = idle_seconds, members, is_idle
        self._next_look = 0.0

    @property
    def may_be_empty(self) -> bool:
        """Whether the pool may be without actors although all is well."""
        return self._idle_seconds > 0

    def check(self, now: float, items: int, heard: Mapping[int, float]) -> None:
        """To be called often. `items`: those without a result. `heard`: when each actor last ended one."""
        if not self._idle_seconds:
            return
        missing = items - self._members.started
        if missing > 0:
            self._members.grow(missing)
        elif now >= self._next_look:
            self._next_look = now + self._idle_seconds / _LOOKS
            for actor, since in self._members.unused_since(now).items():
                if self._members.started <= items:
                    return
                if self._is_idle(actor) and now - max(since, heard.get(actor, since)) >= self._idle_seconds:
                    self._members.retire(actor, f"it had nothing to do for {self._idle_seconds:.0f} s")
