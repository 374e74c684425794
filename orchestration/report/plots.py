"""The report's plots as inline SVG. Their colours are CSS variables, so they follow the page's light or dark mode.

Uses matplotlib's figures directly, never pyplot, so drawing a report leaves no global state behind.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from orchestration.report.assemble import Group, Report, Stage, StepPoint

INK, MUTED, LINE, FIRST, SECOND = "#010101", "#020202", "#030303", "#040404", "#050505"
"""Placeholders that become CSS variables in the SVG. No plot uses them as real colours."""

CSS_VARIABLES = {INK: "--ink", MUTED: "--muted", LINE: "--line", FIRST: "--accent", SECOND: "--second"}

LETTER_WIDTH = 0.018
"""The width of a letter of a phase's name, as a share of a panel's width."""

SPEED_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)

RC: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": LINE,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 32,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": LINE,
    "lines.linewidth": 1.8,
}


def draw_progress(report: Report) -> str:
    """Success rate and mean speed-up of the rollouts by training step; "" without steps."""
    return _draw_panels(
        report,
        ("Success rate of rollouts", lambda point: point.success, FIRST, "share"),
        ("Mean speed-up over eager of correct rollouts", lambda point: point.mean_speedup, SECOND, "speed"),
    )


def draw_learning(report: Report) -> str:
    """Mean reward and KL divergence from the reference policy by training step; "" without either."""
    return _draw_panels(
        report,
        ("Mean reward", lambda point: point.reward, FIRST, "number"),
        ("KL to the reference policy", lambda point: point.kl, SECOND, "number"),
    )


def draw_doubted(report: Report) -> str:
    """The share of rollouts with findings of the guard, by training step; "" if it found nothing."""
    if not any(point.doubted for point in report.steps):
        return ""
    return _draw_panels(report, ("Rollouts with findings of the guard", lambda point: point.doubted, SECOND, "share"))


def draw_distribution(group: Group) -> str:
    """Speed-ups over eager of each stage's correct samples, on a logarithmic axis; "" without correct samples."""
    stages = [stage for stage in group.stages if stage.speedups]
    if not stages:
        return ""
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(9.6, 0.9 + 0.55 * len(stages)), layout="constrained")
        axes = figure.add_subplot()
        _draw_strips(axes, stages)
        return _svg(figure, f"distribution {group.title}".strip())


def _draw_strips(axes: Axes, stages: Sequence[Stage]) -> None:
    """One row per stage: every sample as a dot, the middle half as a bar, the median as a line."""
    generator = np.random.default_rng(0)
    for row, stage in enumerate(reversed(stages)):
        speeds = np.array(stage.speedups)
        jitter = row + generator.uniform(-0.24, 0.24, len(speeds))
        low, middle, high = np.quantile(speeds, [0.25, 0.5, 0.75])
        axes.plot([low, high], [row, row], color=SECOND, linewidth=11, alpha=0.22, solid_capstyle="round")
        axes.scatter(speeds, jitter, s=11, color=FIRST, alpha=0.55, linewidths=0)
        axes.plot([middle, middle], [row - 0.3, row + 0.3], color=SECOND, linewidth=2.4, solid_capstyle="round")
    axes.axvline(1.0, color=MUTED, linewidth=1, linestyle=(0, (3, 3)), zorder=0)
    every = np.concatenate([np.array(stage.speedups) for stage in stages])
    axes.set_xscale("log")
    low, high = min(every.min(), 0.9) / 1.05, max(every.max(), 1.2) * 1.05
    axes.set_xlim(low, high)
    axes.set_ylim(-0.6, len(stages) - 0.4)
    ticks = [tick for tick in SPEED_TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(stages)), [stage.label for stage in reversed(stages)])
    axes.tick_params(length=0)
    axes.grid(axis="x", alpha=0.6)
    axes.set_axisbelow(True)
    axes.spines[["left", "bottom"]].set_visible(False)


Panel = tuple[str, Callable[[StepPoint], float | None], str, str]
"""Title, figure of a step, colour, and kind of the figure: `share`, `speed` or `number`."""


def _draw_panels(report: Report, *panels: Panel) -> str:
    """Panels side by side. A panel without any value is left out."""
    drawn = [panel for panel in panels if any(panel[1](point) is not None for point in report.steps)]
    if not drawn:
        return ""
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(4.8 * len(drawn), 2.7), layout=ConstrainedLayoutEngine(wspace=0.06))
        for place, panel in enumerate(drawn, start=1):
            _draw_curve(figure.add_subplot(1, len(drawn), place), report, panel)
        return _svg(figure, drawn[0][0])


def _draw_curve(axes: Axes, report: Report, panel: Panel) -> None:
    """A figure by step, with the steps of all phases in a row. A line and a name show where a phase begins."""
    title, figure_of, colour, kind = panel
    axes.set_title(title)
    values = [figure_of(point) for point in report.steps]
    ticks: list[tuple[int, int]] = []
    free, raised = 0.0, False
    for phase, label in report.phases:
        places = [place for place, point in enumerate(report.steps) if point.phase == phase]
        if not places:
            continue
        drawn = [(place, value) for place in places if (value := values[place]) is not None]
        if drawn:
            axes.plot(*zip(*drawn, strict=True), color=colour, marker="o", markersize=3.5)
        if places[0] > 0:
            axes.axvline(places[0] - 0.5, color=LINE, linewidth=1.2)
        # A name that would overlap the previous one stands a line higher.
        crowded = places[0] < free and not raised
        raised, free = crowded, places[0] + len(label) * LETTER_WIDTH * len(report.steps)
        height = 1.12 if crowded else 1.03
        axes.annotate(label, (places[0] - 0.4, height), xycoords=("data", "axes fraction"), color=MUTED, fontsize=8.5)
        every = max(1, len(places) // 5)
        ticks += [(place, report.steps[place].step) for place in places[::every]]
    axes.set_xticks([place for place, _ in ticks], [str(step) for _, step in ticks])
    axes.set_xlim(-0.6, len(report.steps) - 0.4)
    axes.set_xlabel("step of the phase")
    axes.tick_params(length=0)
    axes.grid(axis="y", alpha=0.6)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    if kind == "share":
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    elif kind == "speed":
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.2f}x")


def _svg(figure: Figure, name: str) -> str:
    """The figure as an SVG element that takes its colours and its font from the page."""
    sink = io.StringIO()
    # Element ids must differ between the figures of one page, and must be the same every time a report is made.
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(sink, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = sink.getvalue()
    text = text[text.index("<svg") :]
    for colour, variable in CSS_VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', rf'\1 role="img" aria-label="{name}"', text, count=1)
    return re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 var(--font)", text)
