"""A report as one self-contained HTML page: no script, no external resource, all text of a model escaped."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from evaluators.records import Outcome, Verdict
from orchestration.report import format as fmt
from orchestration.report import plots
from orchestration.report.assemble import Report
from orchestration.report.rows import NO_CODE
from orchestration.report.statistics import TaskSummary
from orchestration.report.tables import intervals_note, portability_table, reading_table, stage_tables
from orchestration.run.kernels import Kernel

FOLDER = Path(__file__).resolve().parent

OUTCOMES = [str(outcome) for outcome in Outcome] + [NO_CODE]
"""The order in which outcomes are shown. Others follow by name."""


def render_html(report: Report) -> str:
    """The report as the text of an HTML page."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["fmt"] = fmt
    return environment.get_template("report.html").render(
        report=report,
        stages=report.stages,
        outcome_names=_outcome_names(report),
        known_outcomes=OUTCOMES,
        groups=[(group, _task_rows([stage.tasks for stage in group.stages])) for group in report.groups],
        tables=[(group, stage_tables(group)) for group in report.groups],
        intervals=intervals_note(report.groups[0]),
        further_tables=list(filter(None, (reading_table(report), portability_table(report)))),
        marked=_task_rows([stage.marked for stage in report.stages]),
        programs=[
            _describe_program(kernel)
            for kernel in sorted(report.kernels, key=lambda kernel: _rank(kernel, report.marks))
        ],
        # The plots need no escaping: matplotlib escaped every text in them.
        progress=Markup(plots.draw_progress(report)),
        learning=Markup(plots.draw_learning(report)),
        doubted=Markup(plots.draw_doubted(report)),
        findings=findings_by_kind(report),
        distributions=[(group.title, Markup(plots.draw_distribution(group))) for group in report.groups],
    )


def light_colours() -> dict[str, str]:
    """The page's colours in light mode, `#rrggbb`, by CSS variable. They stand in the page's first `:root`."""
    page = (FOLDER / "report.html").read_text(encoding="utf-8")
    root = page.split(":root {", 1)[1].split("}", 1)[0]
    return dict(re.findall(r"(--\w+): (#[0-9a-f]{6});", root))


def _outcome_names(report: Report) -> list[str]:
    """The outcomes that occur, in the order of `OUTCOMES`."""
    seen = {name for group in report.groups for stage in group.stages for name in stage.outcomes}
    return [name for name in OUTCOMES if name in seen] + sorted(seen - set(OUTCOMES))


def findings_by_kind(report: Report) -> list[tuple[str, list[int]]]:
    """The guard's findings: each kind with its counts, the most frequent kind first.

    The counts are ordered by training phase, then by assessment, then by assessment on held-out tasks.
    """
    assessed = [stage.findings for group in report.groups for stage in group.stages]
    columns = [*(report.findings.get(phase, {}) for phase, _ in report.phases), *assessed]
    kinds = {kind for column in columns for kind in column}
    rows = [(kind, [column.get(kind, 0) for column in columns]) for kind in kinds]
    return sorted(rows, key=lambda row: (-sum(row[1]), row[0]))


def _task_rows(stages: Sequence[Sequence[TaskSummary]]) -> list[dict[str, Any]]:
    """One row per task: its id, and its summary in every stage, None if it was not assessed there."""
    by_stage = [{task.task_id: task for task in tasks} for tasks in stages]
    names = sorted({name for tasks in by_stage for name in tasks})
    return [{"id": name, "stages": [tasks.get(name) for tasks in by_stage]} for name in names]


def _rank(kernel: Kernel, marks: Container[str]) -> tuple[bool, float, str]:
    """Sorts the fastest first. Kernels of marked tasks come last, because their speed means nothing."""
    best = kernel.verdict.best_baseline
    return kernel.task_id in marks, (-kernel.verdict.speedups[best].value if best else math.inf), kernel.task_id


def _describe_program(kernel: Kernel) -> dict[str, Any]:
    """The best program of a task as the page shows it: speed-ups, how they were measured, source."""
    verdict = kernel.verdict
    return {
        "task": kernel.task_id,
        "arch": kernel.arch,
        "author": kernel.candidate.author,
        "digest": kernel.candidate.digest,
        "source": kernel.candidate.source,
        "best": verdict.speedups[verdict.best_baseline] if verdict.best_baseline else None,
        "speedups": sorted(verdict.speedups.items()),
        "facts": _facts(verdict),
        "findings": verdict.guard,
    }


def _facts(verdict: Verdict) -> Mapping[str, str]:
    """How the verdict was measured, by name."""
    facts: dict[str, str] = {}
    if verdict.timing is not None:
        timing = verdict.timing
        for name, estimate in [("candidate", timing.candidate_seconds), ("reference", timing.reference_seconds)]:
            bounds = f"{fmt.seconds(estimate.low)} to {fmt.seconds(estimate.high)}"
            facts[name] = f"{fmt.seconds(estimate.value)} ({bounds})"
        facts["timing"] = f"{timing.pairs} pairs, stopped by {timing.stopped_by}"
    if verdict.correctness is not None:
        correctness = verdict.correctness
        facts["correctness"] = (
            f"error {correctness.error:.2g} of {correctness.tolerance:.2g} tolerated, "
            f"on {correctness.trials} checked outputs"
        )
    return {**facts, **{name: value for name, value in sorted(verdict.evaluator.items()) if value}}


def render_comparison(compared):
    return ""
