"""Seconds of a judgement by kind of work, so that a report can show the cost of a verdict."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Costs:
    """Seconds by kind of work. Within a block, all seconds count for the outermost block's kind."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._is_within = False

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Counts the seconds of a block."""
        start, is_outermost, self._is_within = time.perf_counter(), not self._is_within, True
        try:
            yield
        finally:
            self._is_within = not is_outermost
            self.add(name, time.perf_counter() - start)

    def add(self, name: str, seconds: float) -> None:
        """Counts seconds, unless they passed within a block, which counts them itself."""
        if not self._is_within:
            self.seconds[name] += seconds
