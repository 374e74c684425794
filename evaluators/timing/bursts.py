"""A burst: some calls in a row, as two clocks saw them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SHORTEST = 1e-9  # seconds that a call takes at least, whatever its runner claims


@dataclass(frozen=True)
class Burst:
    """The times of some calls in a row, in seconds.

    `judged`: of the whole burst by the judge's clock. `own`: of each call by the runner's clock. The first `warm` calls
    bring caches and clocks into their usual state. `waited`: for how long the runner's threads were ready to run and
    had no core.
    """

    judged: float
    own: tuple[float, ...]
    warm: int = 0
    waited: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of all calls by the runner's clock."""
        return max(sum(self.own), SHORTEST)

    @property
    def typical(self) -> float:
        """Seconds of one call by the runner's clock: the mean of the middle half of the calls.

        An interrupted call moves it no more than it moves the median. Unlike the median, it does not jump by the
        clock's resolution.
        """
        measured = np.sort(self.own[self.warm :])
        cut = len(measured) // 4
        return max(float(np.mean(measured[cut : len(measured) - cut])), SHORTEST)


BurstPair = tuple[Burst, Burst]
"""A burst of the reference and one of the candidate, neighbours in time."""


def without_offset(candidate: float, reference: float, offset: float) -> float:
    """Seconds of the candidate's call without the offset of its process.

    The whole offset is taken off a call that is as long as the reference's, and a share of it off a shorter call, since
    a program that runs fewer kernels may have less of it.
    """
    share = min(1.0, candidate / reference)
    return max(candidate - share * offset, 0.5 * candidate)
