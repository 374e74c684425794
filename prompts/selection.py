"""Selects the scored candidates that a contrastive prompt shows (CUDA-L1 section 2.4.3), by one of three strategies.

A selection depends on nothing but the candidates and a random generator. It never changes the buffer, and never shows a
candidate twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from configs.schema import BufferConfig
from evaluators.records import Candidate, digest_of

ISLANDS = 4
MIGRATION_INTERVAL = 10
"""Steps between two migrations."""


@dataclass(frozen=True)
class ScoredCandidate:
    """A successful candidate with its speed-up, and the training step at which that was measured."""

    candidate: Candidate
    speedup: float
    step: int


class Selection(Protocol):
    """Draws the exemplars of one prompt."""

    def select(self, scored: Sequence[ScoredCandidate], n: int, rng: np.random.Generator) -> list[ScoredCandidate]:
        """At most `n` distinct candidates of one task, from slow to fast. If the strategy finds fewer, the caller fills
        up."""
        ...


def bucket_of(speedup: float, width: float) -> int:
    """The index i of the score bucket [i * width, (i + 1) * width) that holds a finite speed-up."""
    return math.floor(speedup / width + 1e-9)  # 0.3 / 0.1 is a little below 3


class BucketSelection:
    """Draws `n` distinct score buckets, preferring fast ones, then one candidate uniformly in each.

    P(B_i) is proportional to exp((mean_i - global mean) / temperature), without replacement (CUDA-L1 section 2.4.3).
    Exemplars of different buckets differ in speed, so the model has something to compare.
    """

    def __init__(self, width: float, temperature: float) -> None:
        self._width = _positive("bucket width", width)
        self._temperature = _positive("temperature", temperature)

    def select(self, scored: Sequence[ScoredCandidate], n: int, rng: np.random.Generator) -> list[ScoredCandidate]:
        buckets: dict[int, list[ScoredCandidate]] = {}
        for member in scored:
            buckets.setdefault(bucket_of(member.speedup, self._width), []).append(member)
        members = [buckets[index] for index in sorted(buckets)]
        means = [math.fsum(member.speedup for member in bucket) / len(bucket) for bucket in members]
        drawn = draw_by_score(means, self._temperature, n, rng)
        return _slow_to_fast(members[index][rng.integers(len(members[index]))] for index in drawn)


class IslandSelection:
    """Divides candidates among islands that develop separately, and draws each prompt's exemplars from one island.

    A candidate's home follows from its digest. After every `migration_interval` steps the best candidate on each island
    becomes visible on the next island, too, in a ring. A prompt takes one inhabited island, uniformly, and draws from
    it with P proportional to exp(speed-up / temperature), without replacement.
    """

    def __init__(self, islands: int, migration_interval: int, temperature: float) -> None:
        self._islands = int(_positive("number of islands", islands))
        self._interval = int(_positive("migration interval", migration_interval))
        self._temperature = _positive("temperature", temperature)

    def populations(self, scored: Sequence[ScoredCandidate]) -> list[list[ScoredCandidate]]:
        """The candidates that are visible on each island. A task's time is the step of its newest candidate."""
        islands: list[dict[str, ScoredCandidate]] = [{} for _ in range(self._islands)]
        arrivals = sorted(scored, key=lambda member: (member.step, member.candidate.digest), reverse=True)
        now = arrivals[0].step if arrivals else 0
        # After one migration per island the best is visible everywhere; further ones without arrivals change nothing.
        for migration in self._migrations(arrivals, now):
            while arrivals and arrivals[-1].step < migration * self._interval:
                self._settle(islands, arrivals.pop())
            best = [max(island.values(), key=_rank, default=None) for island in islands]
            for home, member in enumerate(best):
                if member is not None:
                    islands[(home + 1) % self._islands][member.candidate.digest] = member
        for member in reversed(arrivals):
            self._settle(islands, member)
        return [list(island.values()) for island in islands]

    def select(self, scored: Sequence[ScoredCandidate], n: int, rng: np.random.Generator) -> list[ScoredCandidate]:
        inhabited = [island for island in self.populations(scored) if island]
        if not inhabited:
            return []
        island = inhabited[rng.integers(len(inhabited))]
        drawn = draw_by_score([member.speedup for member in island], self._temperature, n, rng)
        return _slow_to_fast(island[index] for index in drawn)

    def _settle(self, islands: list[dict[str, ScoredCandidate]], member: ScoredCandidate) -> None:
        home = int(digest_of(member.candidate.digest), 16) % self._islands
        islands[home][member.candidate.digest] = member

    def _migrations(self, arrivals: Sequence[ScoredCandidate], now: int) -> list[int]:
        """The migrations up to step `now` that can change anything: one full round after each arrival."""
        last = now // self._interval
        numbers: set[int] = set()
        for first in {member.step // self._interval + 1 for member in arrivals}:
            numbers.update(range(first, min(first + self._islands, last + 1)))
        return sorted(numbers)


class RandomSelection:
    """Draws uniformly, without replacement. The other strategies are compared with this one."""

    def select(self, scored: Sequence[ScoredCandidate], n: int, rng: np.random.Generator) -> list[ScoredCandidate]:
        drawn = rng.permutation(len(scored))[: max(n, 0)]
        return _slow_to_fast(scored[index] for index in drawn)


def make_selection(config: BufferConfig) -> Selection:
    """The selection that `buffer.strategy` names. Raises ValueError for an unknown name."""
    match config.strategy:
        case "bucket":
            return BucketSelection(config.bucket_width, config.temperature)
        case "island":
            return IslandSelection(ISLANDS, MIGRATION_INTERVAL, config.temperature)
        case "random":
            return RandomSelection()
    raise ValueError(f"buffer.strategy must be bucket, island or random, got {config.strategy!r}")


def draw_by_score(scores: Sequence[float], temperature: float, n: int, rng: np.random.Generator) -> list[int]:
    """Draws at most `n` distinct indices, one after the other, with P proportional to exp(score / temperature).

    The `n` largest values of score / temperature + Gumbel noise are such a draw. Nothing is exponentiated, so even a
    score that is far from the others can be drawn.
    """
    noise = rng.gumbel(size=len(scores))
    keys: NDArray[np.float64] = np.asarray(scores, dtype=np.float64) / temperature + noise
    return [int(index) for index in np.argsort(-keys, kind="stable")[: max(n, 0)]]


def _rank(member: ScoredCandidate) -> tuple[float, str]:
    return member.speedup, member.candidate.digest


def _slow_to_fast(members: Iterable[ScoredCandidate]) -> list[ScoredCandidate]:
    return sorted(members, key=_rank)


def _positive(name: str, value: float) -> float:
    if not value > 0:
        raise ValueError(f"{name} must be positive, got {value}")
    return value
