"""A report of one run or of several as one self-contained HTML page.

It loads nothing. Its one script is our own, and the page's policy lets no other run. All text of a model is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from evaluators.records import Outcome
from orchestration.report import format as fmt
from orchestration.report.assemble import Group, Report
from orchestration.report.charts import busy_curve, curves, strips_of
from orchestration.report.code import highlighted
from orchestration.report.effort import ROLES
from orchestration.report.fast_p_tables import compared_fast_p, fast_p_tables
from orchestration.report.heat import HeatMap, TaskSpeeds, heat_map, task_speeds
from orchestration.report.paper_tables import compared_tables, differences_table, gains_table, statistics_tables
from orchestration.report.programs import ProgramView, programs_of
from orchestration.report.side_by_side import GroupOfRuns, SideBySide
from orchestration.report.tables import INTERVALS, further_tables, intervals_note, stage_tables
from orchestration.run.judged_rollouts import NO_CODE

TEMPLATES = Path(__file__).resolve().parent / "templates"

OUTCOMES = [str(outcome) for outcome in Outcome] + [NO_CODE]
"""The order in which outcomes are shown. Others follow by name."""

_SECTIONS = (
    ("runs", "Runs"),
    ("differences", "What differs"),
    ("stages", "Stages"),
    ("outcomes", "Outcomes"),
    ("training", "Training"),
    ("guard", "Guard"),
    ("speedups", "Speed-ups by stage"),
    ("tasks", "Tasks by stage"),
    ("baselines", "Speed-ups by task"),
    ("marked", "Marked tasks"),
    ("programs", "Best programs"),
    ("effort", "Utilisation and cost"),
    ("configuration", "Configuration"),
)


_LINK = re.compile(r'<a href="#(\w+)">[^<]*</a>')


@dataclass(frozen=True)
class Live:
    """A page that loads itself again every so many `seconds`, since its run goes on. `at`: when it was made, as text.
    `expected`: when the run ends, as text; empty if that is unknown."""

    seconds: float
    at: str
    expected: str = ""


def render_html(report: Report, live: Live | None = None) -> str:
    """The report as the text of an HTML page."""
    distributions = [(group.title, made) for group in report.groups if (made := strips_of(group)) is not None]
    return render_page(
        "report.html",
        report=report,
        stages=report.stages,
        outcome_names=_outcome_names([report]),
        outcomes=[(group.title, [(stage.label, stage.outcomes) for stage in group.stages]) for group in report.groups],
        tables=[
            (group, stage_tables(group), [*statistics_tables(group), *fast_p_tables(group)]) for group in report.groups
        ],
        intervals=intervals_note(report.groups[0]),
        further_tables=further_tables(report),
        heat_maps=[(group.title, _heat(group)) for group in report.groups],
        marked=heat_map([(stage.label, "") for stage in report.stages], [stage.marked for stage in report.stages]),
        speeds=[
            (group.title, task_speeds(group.stages[-1].tasks, report.config.evaluator.baselines))
            for group in report.groups
            if group.stages
        ],
        programs=programs_of(report),
        curves=curves([report]),
        findings=findings_by_kind(report),
        distributions=distributions,
        busy=busy_curve(report, report.busy),
        live=live,
    )


def render_comparison(compared: SideBySide) -> str:
    """Several runs side by side as the text of an HTML page."""
    return render_page(
        "comparison.html",
        compared=compared,
        outcome_names=_outcome_names(compared.reports),
        intervals=INTERVALS,
        differences=differences_table(compared, width=400),
        tables=[
            (group, [*compared_tables(compared, group), *compared_fast_p(compared, group)], gains_table(group))
            for group in compared.groups
        ],
        curves=curves(compared.reports),
        outcomes=[(group.title, _last_outcomes(compared.names, group)) for group in compared.groups],
        heat_maps=[(group.title, _heat_of_runs(compared.names, group)) for group in compared.groups],
        speeds=list(_speeds_of_runs(compared)),
        findings=_findings_of_runs(compared.reports),
        programs=_programs_by_task(compared),
    )


def light_colours() -> dict[str, str]:
    """The page's colours in light mode, `#rrggbb`, by CSS variable. They stand in the first `:root` of its style."""
    root = _read("page.css").split(":root {", 1)[1].split("}", 1)[0]
    return dict(re.findall(r"(--\w+): (#[0-9a-f]{6});", root))


def findings_by_kind(report: Report) -> list[tuple[str, list[int]]]:
    """The guard's findings: each kind with its counts, the most frequent kind first.

    The counts are ordered by training phase, then by assessment, then by assessment on held-out tasks.
    """
    assessed = [stage.findings for group in report.groups for stage in group.stages]
    return _by_kind([*(report.findings.get(phase, {}) for phase, _ in report.phases), *assessed])


def _by_kind(columns: Sequence[Mapping[str, int]]) -> list[tuple[str, list[int]]]:
    kinds = {kind for column in columns for kind in column}
    rows = [(kind, [column.get(kind, 0) for column in columns]) for kind in kinds]
    return sorted(rows, key=lambda row: (-sum(row[1]), row[0]))


def render_page(name: str, **content: Any) -> str:
    """A template of this folder with its content, as a page that loads nothing. A link of its navigation to a section
    that it does not have is left out."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(fmt=fmt, highlighted=highlighted)
    script = _read("page.js")
    page = environment.get_template(name)
    text = page.render(**{"live": None, **content}, **_frame(script), sections=_SECTIONS)
    present = set(re.findall(r'<h2 id="(\w+)"', text))
    return _LINK.sub(lambda link: link[0] if link[1] in present else "", text)


def _frame(script: str) -> dict[str, Any]:
    """Style and script, with the digest that lets this script run and no other."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "style": Markup(_read("page.css")),
        "script": Markup(script),
        "script_digest": digest,
        "known_outcomes": OUTCOMES,
        "roles": ROLES,
    }


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _outcome_names(reports: Iterable[Report]) -> list[str]:
    """The outcomes that occur, in the order of `OUTCOMES`."""
    stages = (stage for report in reports for group in report.groups for stage in group.stages)
    seen = {name for stage in stages for name in stage.outcomes}
    return [name for name in OUTCOMES if name in seen] + sorted(seen - set(OUTCOMES))


def _heat(group: Group) -> HeatMap:
    return heat_map([(stage.label, "") for stage in group.stages], [stage.tasks for stage in group.stages])


def _heat_of_runs(names: Sequence[str], group: GroupOfRuns) -> HeatMap:
    """A column for each stage of each run."""
    stages = [
        (name, stage)
        for name, of_run in zip(names, group.of_runs, strict=True)
        for stage in (of_run.stages if of_run else ())
    ]
    return heat_map([(stage.label, name) for name, stage in stages], [stage.tasks for _, stage in stages])


def _last_outcomes(names: Sequence[str], group: GroupOfRuns) -> list[tuple[str, Mapping[str, int]]]:
    return [
        (f"{name}, {of_run.stages[-1].label}", of_run.stages[-1].outcomes)
        for name, of_run in zip(names, group.of_runs, strict=True)
        if of_run and of_run.stages
    ]


def _speeds_of_runs(compared: SideBySide) -> Iterable[tuple[str, str, TaskSpeeds]]:
    for group in compared.groups:
        for report, of_run in zip(compared.reports, group.of_runs, strict=True):
            if of_run and of_run.stages:
                made = task_speeds(of_run.stages[-1].tasks, report.config.evaluator.baselines)
                yield report.name, group.title, made


def _findings_of_runs(reports: Sequence[Report]) -> list[tuple[str, list[int]]]:
    """The findings of training and assessments of each run, by kind."""
    columns = []
    for report in reports:
        counts: Counter[str] = Counter()
        for of_phase in report.findings.values():
            counts.update(of_phase)
        for group in report.groups:
            for stage in group.stages:
                counts.update(stage.findings)
        columns.append(counts)
    return _by_kind(columns)


def _programs_by_task(compared: SideBySide) -> list[tuple[str, list[ProgramView]]]:
    """By task, the best program of each run, under the run's name."""
    by_task: dict[str, list[ProgramView]] = defaultdict(list)
    for report in compared.reports:
        for view in programs_of(report):
            by_task[view.title].append(replace(view, title=report.name))
    return sorted(by_task.items())
