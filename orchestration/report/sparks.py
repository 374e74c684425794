"""Curves of training as one line of text each, for terminals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestration.report import format as fmt
from orchestration.report.assemble import Report, StepPoint

BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Spark:
    """The curve of one figure of one run. `blocks`: from the first step to the last, a blank for a step without the
    figure. `first`, `last`: the means of the first and the last quarter of the steps."""

    figure: str
    run: str
    blocks: str
    first: str
    last: str


def sparks_of(reports: Sequence[Report], width: int) -> list[Spark]:
    """The curves of the rollouts by training step, at most `width` characters each. The curves of a figure have one
    scale. A run without any value of a figure is left out."""
    figures: list[tuple[str, Callable[[StepPoint], float | None], Callable[[float | None], str]]] = [
        ("success", lambda point: point.success, fmt.share),
        ("mean speed-up", lambda point: point.mean_speedup, fmt.speed),
        ("reward", lambda point: point.reward, lambda value: fmt.NOTHING if value is None else f"{value:.2f}"),
    ]
    made = []
    for name, figure, write in figures:
        curves = [(report.name, _pooled([figure(point) for point in report.steps], width)) for report in reports]
        known = [value for _, values in curves for value in values if value is not None]
        for run, values in curves:
            if any(value is not None for value in values):
                quarter = max(len(values) // 4, 1)
                ends = (write(_mean(values[:quarter])), write(_mean(values[-quarter:])))
                made.append(Spark(name, run, _blocks(values, min(known), max(known)), *ends))
    return made


def trend(values: Sequence[float | None], width: int) -> str:
    """The curve of one figure, at most `width` characters; empty without any value."""
    known = [value for value in values if value is not None]
    return _blocks(_pooled(values, width), min(known), max(known)) if known else ""


def _pooled(values: Sequence[float | None], width: int) -> list[float | None]:
    """At most `width` values, each the mean of its share of the steps."""
    size = min(len(values), width)
    return [_mean(values[index * len(values) // size : (index + 1) * len(values) // size]) for index in range(size)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _blocks(values: Sequence[float | None], low: float, high: float) -> str:
    steps = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(" " if value is None else BLOCKS[round((value - low) * steps)] for value in values)
