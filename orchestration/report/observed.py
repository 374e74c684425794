"""What a run observed as it went, read from its metrics: how varied its samples are, how answers use the exemplars that
they were shown (`orchestration.step.variety`, `orchestration.step.reading`), and what its teachers were asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


class Metrics:
    """The metrics of a run: `rows` with phase, step, name and value."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows = rows

    @cached_property
    def phases(self) -> set[str]:
        """The keys of the phases and assessments that have metrics."""
        return {row["phase"] for row in self.rows}

    @cached_property
    def _by_phase(self) -> Mapping[str, Mapping[int, Mapping[str, float]]]:
        found: dict[str, dict[int, dict[str, float]]] = {}
        for row in self.rows:
            found.setdefault(row["phase"], {}).setdefault(row["step"], {})[row["name"]] = row["value"]
        return found

    def has(self, name: str) -> bool:
        """Whether any step has a metric."""
        return any(row["name"] == name for row in self.rows)

    def shares_of(self, name: str, phases: Iterable[str]) -> dict[tuple[str, int], float]:
        """The values of a metric in the steps of phases, by phase and step."""
        wanted = set(phases)
        rows = (row for row in self.rows if row["name"] == name and row["phase"] in wanted)
        return {(row["phase"], row["step"]): row["value"] for row in rows}

    def of(self, phase: str) -> list[Mapping[str, float]]:
        """The metrics of each step of a phase."""
        steps = self._by_phase.get(phase, {})
        return [steps[step] for step in sorted(steps)]


@dataclass(frozen=True)
class Variety:
    """How much the samples of a stage differ. A figure that was not recorded is None.

    `programs`: distinct programs per sample. `bigrams`: distinct pairs of tokens in a row, as a share of all pairs of a
    task's responses. `entropy`: nats per token, at the temperature of the samples.
    """

    programs: float | None
    bigrams: float | None
    entropy: float | None


@dataclass(frozen=True)
class Reading:
    """How the answers to a phase's contrastive prompts use the exemplars, as shares of `answers`, except for
    `lesson_text`: the mean share of an analysis that stands word by word in the analysis of a lesson (None if unknown).
    `names_speed` is None if the prompts print no speed-ups.
    """

    answers: int
    names_exemplar: float
    names_speed: float | None
    lesson_text: float | None


@dataclass(frozen=True)
class Tutoring:
    """What the endpoints among the teachers of all SFT phases gave: answers, and answers that were lost; tokens of
    prompts and answers; and the cost of these, None if the run's configuration has no prices."""

    answers: int
    lost: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None

    def __str__(self) -> str:
        lost = f", {self.lost:,} lost" if self.lost else ""
        cost = "" if self.cost is None else f"; they cost {self.cost:,.2f}"
        return (
            f"Endpoints of teachers gave {self.answers:,} answers{lost}, with {self.prompt_tokens:,} tokens of prompts "
            f"and {self.completion_tokens:,} of answers{cost}."
        )


def tutoring_of(metrics: Metrics, phases: Iterable[str]) -> Tutoring | None:
    """The sum over all phases; None if no endpoint was asked."""
    steps = [step for phase in phases for step in metrics.of(phase) if "teacher/answers" in step]
    if not steps:
        return None

    def total(name: str) -> int:
        return int(sum(step[f"teacher/{name}"] for step in steps))

    costs = [step["teacher/cost"] for step in steps if "teacher/cost" in step]
    return Tutoring(
        total("answers"),
        total("lost"),
        total("prompt_tokens"),
        total("completion_tokens"),
        sum(costs) if costs else None,
    )


def variety_of(metrics: Metrics, key: str, *, of_held_out: bool) -> Variety | None:
    """The variety of an assessment's samples; None for a run that did not record it."""
    steps = metrics.of(key)
    prefix = "held_out/" if of_held_out else ""
    names = (f"{prefix}distinct_programs", f"{prefix}distinct_bigrams", f"{prefix}token_entropy")
    figures = [steps[0].get(name) for name in names] if steps else []
    return Variety(*figures) if any(figure is not None for figure in figures) else None


def readings_of(metrics: Metrics, phases: Iterable[str]) -> dict[str, Reading]:
    """By phase, the means over all answers to contrastive prompts. A phase without any is left out."""
    readings: dict[str, Reading] = {}
    for phase in phases:
        steps = [step for step in metrics.of(phase) if step.get("contrastive/answers")]
        answers = sum(step["contrastive/answers"] for step in steps)
        if answers:
            names, speed, text = (
                _weighted_mean(steps, name) for name in ("names_exemplar", "names_speed", "lesson_text")
            )
            readings[phase] = Reading(int(answers), names or 0.0, speed, text)
    return readings


def _weighted_mean(steps: Sequence[Mapping[str, float]], name: str) -> float | None:
    """The mean over steps, each with the weight of its answers; None if no step has the figure."""
    pairs = [
        (step["contrastive/answers"], step[f"contrastive/{name}"]) for step in steps if f"contrastive/{name}" in step
    ]
    total = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / total if total else None
