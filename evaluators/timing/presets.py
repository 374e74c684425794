"""Stopping criteria, and the presets made of them: how much measuring a verdict is worth.

A criterion sees ratios and elapsed seconds alone. None but `ClearlySlow` depends on which side is faster: a program
that may be fast must never be sampled less, or more, for being fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from evaluators.timing.estimates import median_estimate

PAPER_SECONDS = 120.0  # for one paired measurement; CUDA-L1 took minutes to half an hour


class StoppingCriterion(Protocol):
    """Decides whether there are enough measurements."""

    def reason(self, ratios: Sequence[float], elapsed: float) -> str | None:
        """Why sampling may stop, or None to go on. `ratios`: speed-ups, one per pair. `elapsed`: in seconds."""


@dataclass(frozen=True)
class IntervalTight:
    """Stops if the interval of the speed-up is no wider than `width` times its value, from `minimum` pairs on."""

    width: float
    minimum: int

    def reason(self, ratios: Sequence[float], elapsed: float) -> str | None:
        if len(ratios) < self.minimum:
            return None
        estimate = median_estimate(ratios)
        return "interval" if estimate.high - estimate.low <= self.width * estimate.value else None


@dataclass(frozen=True)
class ClearlySlow:
    """Stops if all speed-ups so far are below `below`, from `minimum` pairs on: no reward depends on how slow exactly.

    That is the sign test of the median, whose interval at this level ends at the largest of the speed-ups. A program
    whose median is at least `below` is stopped with a probability of at most 0.5 ** `minimum`. More pairs add nothing
    to that: all of n speed-ups are below only if all of the first `minimum` were.
    """

    below: float
    minimum: int

    def reason(self, ratios: Sequence[float], elapsed: float) -> str | None:
        return "slow" if len(ratios) >= self.minimum and max(ratios) < self.below else None


@dataclass(frozen=True)
class PairBudget:
    """Stops after `maximum` pairs."""

    maximum: int

    def reason(self, ratios: Sequence[float], elapsed: float) -> str | None:
        return "pairs" if len(ratios) >= self.maximum else None


@dataclass(frozen=True)
class TimeBudget:
    """Stops after `seconds`, once there are `minimum` pairs. On a CPU these must be enough for
    `evaluators.timing.supported`: else a program could use up the time, and nothing would bound its speed-up."""

    seconds: float
    minimum: int = 6

    def reason(self, ratios: Sequence[float], elapsed: float) -> str | None:
        return "time" if elapsed >= self.seconds and len(ratios) >= self.minimum else None


@dataclass(frozen=True)
class Preset:
    """How much measuring a verdict is worth.

    `trials`: how many of the task's own inputs are checked before timing. `distributions`, `shapes`: how many inputs
    with other values and of other shapes are checked. `warmup`: how many pairs of bursts do not count.
    `pairs_of_processes`: how many of them a close call is made on. `paper`: the speed-up is CUDA-L1's
    (`evaluators.timing.paper`).
    """

    name: str
    trials: int
    warmup: int
    criteria: tuple[StoppingCriterion, ...]
    distributions: int = 2
    shapes: int = 1
    pairs_of_processes: int = 1
    paper: bool = False

    def reason_to_stop(self, ratios: Sequence[float], elapsed: float) -> str | None:
        """Why sampling may stop now, or None."""
        reasons = (criterion.reason(ratios, elapsed) for criterion in self.criteria)
        return next(filter(None, reasons), None)


# A program that is half as fast as the reference is no success, so its exact speed hardly matters. At most one in a
# thousand programs that are faster is stopped. With fewer than 6 pairs no interval would reach 95 %.
_CLEARLY_SLOW = ClearlySlow(0.5, 10)

PRESETS = {
    "cpu": {
        "fast": Preset("fast", 2, 2, (IntervalTight(0.08, 10), _CLEARLY_SLOW, PairBudget(60), TimeBudget(1.5, 10))),
        "thorough": Preset(
            "thorough",
            5,
            5,
            (IntervalTight(0.02, 30), PairBudget(600), TimeBudget(15.0, 12)),
            3,
            2,
            pairs_of_processes=3,
        ),
        "paper": Preset("paper", 5, 5, (TimeBudget(PAPER_SECONDS, 7 * 6),), 3, 2, paper=True),
    },
    "cuda": {
        "fast": Preset("fast", 2, 2, (IntervalTight(0.008, 16), _CLEARLY_SLOW, PairBudget(24), TimeBudget(0.8))),
        "thorough": Preset(
            "thorough",
            5,
            3,
            (IntervalTight(0.003, 40), PairBudget(200), TimeBudget(8.0, 20)),
            3,
            2,
            pairs_of_processes=3,
        ),
        "paper": Preset("paper", 5, 3, (TimeBudget(PAPER_SECONDS, 7 * 6),), 3, 2, paper=True),
    },
}


def preset_named(name: str, arch: str = "cpu") -> Preset:
    """The preset of an architecture. A GPU's events need fewer pairs than a CPU's clock.

    Raises ValueError for a name that no preset has.
    """
    presets = PRESETS["cpu" if arch == "cpu" else "cuda"]
    if name not in presets:
        raise ValueError(f"preset must be one of {', '.join(presets)}, got {name}")
    return presets[name]
