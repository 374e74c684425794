"""Stopping criteria, and the presets made of them: how much measuring a verdict is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from evaluators.timing.estimates import median_estimate

PAPER_SECONDS = 120.0  # of a paired measurement; CUDA-L1 took minutes to half an hour


class StoppingCriterion(Protocol):
    """Says why sampling may stop, or None to go on."""

    def reason(self, ratios: Sequence[float], elapsed: float) -> str | None: ...


@dataclass(frozen=True)
class IntervalTight:
    """Stops when the interval of the speed-up is within `width` of its value, relative, from `minimum` pairs on."""

    width: float
    minimum: int

    def reason(self, ratios: Sequence[float], elapsed: float) -> str | None:
        if len(ratios) < self.minimum:
            return None
        estimate = median_estimate(ratios)
        return "interval" if estimate.high - estimate.low <= self.width * estimate.value else None


@dataclass(frozen=True)
class PairBudget:
    """Stops after `maximum` pairs."""

    maximum: int

    def reason(self, ratios: Sequence[float], elapsed: float) -> str | None:
        return "pairs" if len(ratios) >= self.maximum else None


@dataclass(frozen=True)
class TimeBudget:
    """Stops after `seconds`, once there are `minimum` pairs."""

    seconds: float
    minimum: int = 6

    def reason(self, ratios: Sequence[float], elapsed: float) -> str | None:
        return "time" if elapsed >= self.seconds and len(ratios) >= self.minimum else None


@dataclass(frozen=True)
class Preset:
    """How much measuring a verdict is worth: `trials` inputs of the task's own, `distributions` with other values and
    `shapes` other shapes are checked; the first `warmup` pairs do not count. A close call is
    made on `pairs_of_processes`. `paper`: the speed-up is CUDA-L1's (`evaluators.timing.paper`)."""

    name: str
    trials: int
    warmup: int
    criteria: tuple[StoppingCriterion, ...]
    distributions: int = 2
    shapes: int = 1
    pairs_of_processes: int = 1
    paper: bool = False

    def stop(self, ratios: Sequence[float], elapsed: float) -> str | None:
        """Why sampling may stop now, or None."""
        return next((why for criterion in self.criteria if (why := criterion.reason(ratios, elapsed))), None)


PRESETS = {
    "cpu": {
        "fast": Preset("fast", 2, 2, (IntervalTight(0.08, 10), PairBudget(60), TimeBudget(1.5))),
        "thorough": Preset("thorough", 5, 5, (IntervalTight(0.02, 30), PairBudget(600), TimeBudget(15.0, 12)), 3, 2),
        "paper": Preset("paper", 5, 5, (TimeBudget(PAPER_SECONDS, 7 * 6),), 3, 2, paper=True),
    },
    "cuda": {
        "fast": Preset("fast", 2, 2, (IntervalTight(0.008, 16), PairBudget(24), TimeBudget(0.8))),
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
    """The preset of an architecture: a GPU's events need fewer pairs than a CPU's clock. Raises ValueError for a name
    that is not a preset's."""
    presets = PRESETS["cpu" if arch == "cpu" else "cuda"]
    if name not in presets:
        raise ValueError(f"preset must be one of {', '.join(presets)}, got {name}")
    return presets[name]
