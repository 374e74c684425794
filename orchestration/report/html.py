"""A report as one self-contained HTML page: no script, no external resource, every text of a model escaped."""

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
from orchestration.report.statistics import TaskSummary
from orchestration.run.directory import RunDirectory
from orchestration.run.kernels import Kernel

FOLDER = Path(__file__).resolve().parent

OUTCOMES = [str(outcome) for outcome in Outcome] + ["no_code"]
"""The order in which outcomes are shown; others follow by name."""


def render_html(report: Report) -> str:
    """The page's text."""
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
        marked=_task_rows([stage.marked for stage in report.stages]),
        programs=[_program(kernel) for kernel in sorted(report.kernels, key=lambda one: _rank(one, report.marks))],
        # The plots are ours; every text in them was escaped by matplotlib.
        progress=Markup(plots.progress(report)),
        learning=Markup(plots.learning(report)),
        doubted=Markup(plots.doubted(report)),
        found=found_by_kind(report),
        distributions=[(group.title, Markup(plots.distribution(group))) for group in report.groups],
    )


def light_colours() -> dict[str, str]:
    """The page's colours where the screen is light, `#rrggbb`, by CSS variable: those of its first `:root`."""
    page = (FOLDER / "report.html").read_text(encoding="utf-8")
    root = page.split(":root {", 1)[1].split("}", 1)[0]
    return dict(re.findall(r"(--\w+): (#[0-9a-f]{6});", root))


def write_html(report: Report, run: RunDirectory) -> str:
    """Writes `report/index.html` into the run directory and returns where it stands."""
    return run.write_report(render_html(report))


def _outcome_names(report: Report) -> list[str]:
    """The outcomes that occur, in the order of `OUTCOMES`."""
    seen = {name for group in report.groups for stage in group.stages for name in stage.outcomes}
    return [name for name in OUTCOMES if name in seen] + sorted(seen - set(OUTCOMES))


def found_by_kind(report: Report) -> list[tuple[str, list[int]]]:
    """Every kind of finding with its counts by phase of training, then by assessment, held-out tasks last; the most
    frequent first."""
    assessed = [stage.found for group in report.groups for stage in group.stages]
    columns = [*(report.found.get(phase, {}) for phase, _ in report.phases), *assessed]
    kinds = {kind for column in columns for kind in column}
    rows = [(kind, [column.get(kind, 0) for column in columns]) for kind in kinds]
    return sorted(rows, key=lambda row: (-sum(row[1]), row[0]))


def _task_rows(stages: Sequence[Sequence[TaskSummary]]) -> list[dict[str, Any]]:
    """One row a task: its id, and its summary in every stage (None where it was not assessed)."""
    by_stage = [{task.task_id: task for task in tasks} for tasks in stages]
    names = sorted({name for tasks in by_stage for name in tasks})
    return [{"id": name, "stages": [tasks.get(name) for tasks in by_stage]} for name in names]


def _rank(kernel: Kernel, marks: Container[str]) -> tuple[bool, float, str]:
    """The fastest first; last those whose speed says nothing, since their tasks are marked."""
    best = kernel.verdict.best_baseline
    return kernel.task_id in marks, (-kernel.verdict.speedups[best].value if best else math.inf), kernel.task_id


def _program(kernel: Kernel) -> dict[str, Any]:
    """What is shown of the best program of a task: the speed-ups, how they were measured, the source."""
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
    """How the verdict came about, by name."""
    facts: dict[str, str] = {}
    if verdict.timing is not None:
        timing = verdict.timing
        for name, estimate in [("candidate", timing.candidate_seconds), ("reference", timing.reference_seconds)]:
            bounds = f"{fmt.seconds(estimate.low)} to {fmt.seconds(estimate.high)}"
            facts[name] = f"{fmt.seconds(estimate.value)} ({bounds})"
        facts["timing"] = f"{timing.pairs} pairs, stopped by {timing.stopped_by}"
    if verdict.correctness is not None:
        found = verdict.correctness
        facts["correctness"] = (
            f"error {found.error:.2g} of {found.tolerance:.2g} tolerated, on {found.trials} checked outputs"
        )
    return {**facts, **{name: value for name, value in sorted(verdict.evaluator.items()) if value}}
