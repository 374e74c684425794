"""The plots of a page, as data that the templates draw: lines in an SVG that stretches, words beside it in HTML.

So a plot fits every width with its words at their own size, can be read without its script, and its colours are the
page's. The script only shows the values under the pointer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from evaluators.records import Estimate
from orchestration.report import format as fmt
from orchestration.report.assemble import Group, Report, StepPoint
from orchestration.report.keys import phase_order

SERIES = 8
"""Colours of the page. Further series begin again, with another stroke."""
BAND_ROOM = 1.6
"""How far beyond the values intervals are shown, so that a wide one does not flatten the curve: the range of the values
times what this exceeds 1 by."""
SPEED_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

Place = tuple[str, int]
"""Phase and step."""
Figure = Callable[[StepPoint], Estimate | float | None]


@dataclass(frozen=True)
class Line:
    """One series. `paths`, `bands`: SVG paths in a square of 100 by 100, `y` downwards. `colour`: 1 to `SERIES`."""

    name: str
    colour: int
    dash: int
    paths: tuple[str, ...]
    bands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chart:
    """A plot. Ticks are pairs of a place in per cent and a text; `marks`: of phases. `hover`: what the script shows, as
    JSON that is safe in a page."""

    title: str
    lines: tuple[Line, ...]
    y_ticks: tuple[tuple[float, str], ...]
    x_ticks: tuple[tuple[float, str], ...]
    marks: tuple[tuple[float, str], ...]
    hover: Markup
    x_title: str = ""
    has_bands: bool = False


@dataclass(frozen=True)
class Axis:
    """Values on a vertical axis, from `low` at the bottom to `high`."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = field(default=())

    def down(self, value: float) -> float:
        """The distance from the top in per cent, within the plot."""
        share = (value - self.low) / (self.high - self.low)
        return round(100 * (1 - min(max(share, 0.0), 1.0)), 2)


def curves(reports: Sequence[Report]) -> list[Chart]:
    """Figures of the rollouts by training step, with a line for each run. A plot without any value is left out."""
    panels: list[tuple[str, Figure, str]] = [
        ("Success rate of rollouts", lambda point: point.estimates.get("success"), "share"),
        ("Mean speed-up over eager of right rollouts", lambda point: point.estimates.get("mean_speedup"), "speed"),
        ("Rollouts faster than eager", lambda point: point.estimates.get("faster"), "share"),
        ("Mean reward", lambda point: point.estimates.get("reward"), "number"),
        ("KL to the reference policy", lambda point: point.kl, "number"),
        ("Rollouts with findings of the guard", _doubted(reports), "share"),
    ]
    made = (_curve(reports, *panel) for panel in panels)
    return [chart for chart in made if chart is not None]


def busy_curve(report: Report, roles: Mapping[str, Mapping[Place, float]]) -> Chart | None:
    """How busy each role was, by step; None if that was not recorded."""
    series = [(role, dict(shares)) for role, shares in roles.items() if shares]
    return _draw("Share of the time in which a role worked", series, dict(report.phases), "share") if series else None


def _doubted(reports: Sequence[Report]) -> Figure:
    """Nothing if the guard found nothing. Without intervals: those of rare findings only say that tasks are few."""
    any_found = any(point.doubted for report in reports for point in report.steps)
    return lambda point: point.doubted if any_found else None


def _curve(reports: Sequence[Report], title: str, figure: Figure, kind: str) -> Chart | None:
    series = []
    for report in reports:
        values = {(point.phase, point.step): figure(point) for point in report.steps}
        series.append((report.name, {place: value for place, value in values.items() if value is not None}))
    if not any(values for _, values in series):
        return None
    labels = {key: label for report in reports for key, label in report.phases}
    return _draw(title, series, labels, kind)


Values = Mapping[Place, Estimate | float]


def _draw(title: str, series: Sequence[tuple[str, Values]], labels: Mapping[str, str], kind: str) -> Chart:
    """Lines over the steps of all series, with the phases in a row."""
    places = sorted({place for _, values in series for place in values}, key=lambda one: (phase_order(one[0]), one[1]))
    across = {place: round(100 * (index + 0.5) / len(places), 2) for index, place in enumerate(places)}
    axis = _axis([value for _, values in series for value in values.values()], kind)
    lines = [
        Line(name, index % SERIES + 1, index // SERIES, *_paths(values, across, axis))
        for index, (name, values) in enumerate(series)
    ]
    marks, ticks = [], []
    for phase, of_phase in groupby(enumerate(places), key=lambda one: one[1][0]):
        steps = list(of_phase)
        marks.append((round(100 * steps[0][0] / len(places), 2), labels.get(phase, phase)))
        every = max(1, math.ceil(len(steps) / max(1, round(6 * len(steps) / len(places)))))
        ticks += [(across[place], str(place[1])) for _, place in steps[::every]]
    return Chart(
        title,
        tuple(lines),
        axis.ticks,
        tuple(ticks),
        tuple(marks),
        _hover(places, across, series, labels, kind),
        "step of the phase",
        any(line.bands for line in lines),
    )


def _paths(values: Values, across: Mapping[Place, float], axis: Axis) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A line and the band of its intervals for each phase. A lone value is a dot: a line without length, with round
    ends."""
    lines, bands = [], []
    ordered = [place for place in across if place in values]
    for _, of_phase in groupby(ordered, key=lambda place: place[0]):
        places = list(of_phase)
        points = [f"{across[place]} {axis.down(_value(values[place]))}" for place in places]
        lines.append(f"M{' L'.join(points)}" + (" h0" if len(points) == 1 else ""))
        known = [(across[place], each) for place in places if isinstance(each := values[place], Estimate)]
        if len(known) > 1:
            upper = [f"{x} {axis.down(each.high)}" for x, each in known]
            lower = [f"{x} {axis.down(each.low)}" for x, each in reversed(known)]
            bands.append(f"M{' L'.join([*upper, *lower])} Z")
    return tuple(lines), tuple(bands)


def _value(each: Estimate | float) -> float:
    return each.value if isinstance(each, Estimate) else each


def _axis(values: Sequence[Estimate | float], kind: str) -> Axis:
    middles = [_value(each) for each in values]
    ends = [end for each in values if isinstance(each, Estimate) for end in (each.low, each.high)]
    if kind == "share":
        top = max(middles) if max(middles) > 0.5 else min(max([*middles, *ends]) * 1.1, 1.0)
        high = 1.0 if max(middles) > 0.5 else max(top, 0.05)
        return Axis(0.0, high, tuple(_ticks(0.0, high, lambda tick: f"{100 * tick:.3g}%")))
    low, high = min(middles), max(middles)
    room = (BAND_ROOM - 1) * max(high - low, abs(high) * 0.1, 1e-9)
    low, high = max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)
    if high - low < 1e-12:
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    write = (lambda tick: f"{tick:.4g}x") if kind == "speed" else (lambda tick: f"{tick:.4g}")
    return Axis(low, high, tuple(_ticks(low, high, write)))


def _ticks(low: float, high: float, write: Callable[[float], str]) -> Iterator[tuple[float, str]]:
    """Round values within the axis: how far up in per cent, and the text."""
    for tick in MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high):
        if low - 1e-12 <= tick <= high + 1e-12:
            yield round(100 * (tick - low) / (high - low), 2), write(0.0 if abs(tick) < 1e-12 else float(tick))


def _hover(
    places: Sequence[Place],
    across: Mapping[Place, float],
    series: Sequence[tuple[str, Values]],
    labels: Mapping[str, str],
    kind: str,
) -> Markup:
    return safe_json(
        {
            "x": [across[place] for place in places],
            "at": [f"{labels.get(phase, phase)}, step {step}" for phase, step in places],
            "series": [
                {"name": name, "values": [_words(values.get(place), kind) for place in places]}
                for name, values in series
            ],
        }
    )


def _words(value: Estimate | float | None, kind: str) -> str | None:
    """A value with its interval, as the script shows it."""
    if value is None:
        return None
    if not isinstance(value, Estimate):
        return fmt.share(value) if kind == "share" else fmt.speed(value) if kind == "speed" else f"{value:.4g}"
    if kind == "share":
        return f"{fmt.share(value.value)} ({fmt.share_interval(value)})"
    if kind == "speed":
        return f"{fmt.speed(value.value)} ({fmt.speed_interval(value)})"
    return f"{value.value:.3g} ({value.low:.3g} to {value.high:.3g})"


def safe_json(data: Any) -> Markup:
    """JSON that no text in it can end, in a page's script element."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False)
    for character, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, escaped)
    return Markup(text)


@dataclass(frozen=True)
class Strip:
    """The speed-ups of one stage's right samples. `dots`: place in per cent and height from 0 to 100; `box`: the middle
    half and the median."""

    label: str
    dots: tuple[tuple[float, float], ...]
    box: tuple[float, float, float]
    words: str
    hover: Markup


@dataclass(frozen=True)
class Strips:
    """Strips over one logarithmic axis, with its ticks and the place of 1x."""

    strips: tuple[Strip, ...]
    ticks: tuple[tuple[float, str], ...]
    one: float


def strips_of(group: Group) -> Strips | None:
    """Speed-ups over eager of each stage's right samples; None without any."""
    stages = [stage for stage in group.stages if stage.speedups]
    if not stages:
        return None
    every = [speed for stage in stages for speed in stage.speedups]
    low, high = math.log(min(*every, 0.9) / 1.08), math.log(max(*every, 1.2) * 1.08)

    def across(speed: float) -> float:
        return round(100 * (math.log(speed) - low) / (high - low), 2)

    generator, made = np.random.default_rng(0), []
    for stage in stages:
        rows = [(speed, row.task_id) for row in stage.rows if (speed := row.over_eager) is not None]
        heights = generator.uniform(12, 88, len(rows))
        quartiles = [float(value) for value in np.quantile([speed for speed, _ in rows], (0.25, 0.5, 0.75))]
        lower, middle, upper = (across(value) for value in quartiles)
        hover = {
            "x": [across(speed) for speed, _ in rows],
            "y": [round(float(height), 1) for height in heights],
            "at": [task for _, task in rows],
            "series": [{"name": "", "values": [fmt.speed(speed) for speed, _ in rows]}],
        }
        made.append(
            Strip(
                stage.label,
                tuple(
                    (across(speed), round(float(height), 1)) for (speed, _), height in zip(rows, heights, strict=True)
                ),
                (lower, middle, upper),
                f"{len(rows)} right sample{'s' if len(rows) > 1 else ''}; median {fmt.speed(quartiles[1])}",
                safe_json(hover),
            )
        )
    round_ones: Sequence[float] = [tick for tick in SPEED_TICKS if low <= math.log(tick) <= high]
    if len(round_ones) < 3:
        between = MaxNLocator(5).tick_values(math.exp(low), math.exp(high))
        round_ones = sorted({1.0, *(float(tick) for tick in between if math.exp(low) <= tick <= math.exp(high))})
    ticks = [(across(tick), f"{tick:g}x") for tick in round_ones]
    return Strips(tuple(made), tuple(_thinned(ticks)), across(1.0))


def _thinned(ticks: Sequence[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """The ticks that have room on a phone, 1x always."""
    ones = [place for place, text in ticks if text == "1x"]
    last = -100.0
    for place, text in ticks:
        is_one = text == "1x"
        near_one = any(0 < abs(place - one) < 9 for one in ones)
        if is_one or (place - last >= 9 and not near_one):
            last = place
            yield place, text
