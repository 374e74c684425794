"""What a run cost: time, responses, tokens, verdicts, and how busy its roles were, by phase. From its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestration.report.keys import ASSESSMENT, run_order
from orchestration.report.observed import Metrics

ROLES = ("engines", "builders", "evaluators", "learner")
"""In the order of a response's way through them."""
UTILISATION = "utilisation/"


@dataclass(frozen=True)
class PhaseEffort:
    """A phase, or all assessments. `busy`: the share of its time in which each of `ROLES` worked, as a mean over steps
    by their length; None if that was not recorded. `measured`: programs. `judging`: the seconds for which their
    verdicts held evaluators. Seconds are those of its steps, without starts and lost work."""

    label: str
    steps: int
    seconds: float
    rollouts: int
    tokens: int
    measured: int
    judging: float
    busy: tuple[float | None, ...]


def effort_of(
    metrics: Metrics, labels: Iterable[tuple[str, str]], judging: Mapping[str, float]
) -> tuple[PhaseEffort, ...]:
    """The effort of each training phase, of the assessments, and in all; empty for a run without metrics.

    `labels`: key and label of the training phases, in order. `judging`: seconds of evaluators by phase.
    """
    parts = [
        _sum(label, [(step, "step_seconds") for step in metrics.of(key)], judging.get(key, 0.0))
        for key, label in labels
    ]
    assessed = sorted((key for key in metrics.phases if key.startswith(ASSESSMENT)), key=run_order)
    steps = [(step, "pipeline_seconds") for key in assessed for step in metrics.of(key)]
    parts.append(_sum("assessments", steps, sum(judging.get(key, 0.0) for key in assessed)))
    parts = [part for part in parts if part.steps]
    return (*parts, _total(parts)) if parts else ()


def _sum(label: str, known: Sequence[tuple[Mapping[str, float], str]], judging: float) -> PhaseEffort:
    def total(name: str) -> int:
        return round(sum(step.get(name, 0.0) for step, _ in known))

    busy = tuple(_weighted(known, f"{UTILISATION}{role}") for role in ROLES)
    return PhaseEffort(
        label,
        len(known),
        sum(step.get(name, 0.0) for step, name in known),
        sum(total(f"{group}rollouts") for group in ("", "held_out/", "marked/")),
        total("generated_tokens"),
        total("measured"),
        judging,
        busy,
    )


def _weighted(steps: Sequence[tuple[Mapping[str, float], str]], name: str) -> float | None:
    pairs = [(step.get(seconds, 0.0), step[name]) for step, seconds in steps if name in step]
    whole = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / whole if whole else None


def _total(parts: Sequence[PhaseEffort]) -> PhaseEffort:
    busy = []
    for index in range(len(ROLES)):
        pairs = [(part.seconds, value) for part in parts if (value := part.busy[index]) is not None]
        whole = sum(weight for weight, _ in pairs)
        busy.append(sum(weight * value for weight, value in pairs) / whole if whole else None)
    return PhaseEffort(
        "in all",
        sum(part.steps for part in parts),
        sum(part.seconds for part in parts),
        sum(part.rollouts for part in parts),
        sum(part.tokens for part in parts),
        sum(part.measured for part in parts),
        sum(part.judging for part in parts),
        tuple(busy),
    )
