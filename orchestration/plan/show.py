"""A plan for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Column, Table

from orchestration.plan.plan import Option, Plan


def show(plan: Plan, console: Console) -> None:
    """Prints the plan: what is known of the types, the options, the stages of the best one, and the notes."""
    best = plan.options[0]
    judging = f"to rent for steps of at most {plan.target:g} s" if plan.target else "to rent"
    titles = ("GPU types", judging, f"stages, {best.name}")
    for title, table in zip(titles, (_types(plan), _options(plan), _stages(best)), strict=True):
        console.print(title, markup=False, highlight=False)
        console.print(table)
        console.print()
    console.print(f"{plan.share:.0%} of the responses are candidates for an evaluator", highlight=False)
    for word, notes in (("assumed", plan.assumed), ("missing", plan.missing)):
        for note in notes:
            console.print(f"{word}: {note}", markup=False, highlight=False)


def _types(plan: Plan) -> Table:
    table = Table("type", "candidates/h", f"{plan.unit}/h", "candidates/h is from", box=None)
    for one in plan.types:
        rate = f"{one.rate:,.0f}" if one.rate else "-"
        table.add_row(one.accelerator, rate, "-" if one.price is None else f"{one.price:,.2f}", one.basis)
    return table


def _options(plan: Plan) -> Table:
    table = Table("", "evaluators", "nodes", "step", "hours", f"{plan.unit}/h", f"{plan.unit} in all", box=None)
    for option in plan.options:
        table.add_row(
            option.name,
            _counts(option.evaluators),
            _counts(option.nodes),
            f"{option.step_seconds:.1f} s",
            f"{option.hours:.1f}",
            f"{option.hour:,.2f}",
            f"{option.cost:,.2f}",
        )
    return table


def _stages(option: Option) -> Table:
    table = Table(
        Column("stage", no_wrap=True),
        "steps",
        "responses",
        "generate",
        "judge",
        "learn",
        "push",
        "step",
        "hours",
        box=None,
    )
    for stage in option.stages:
        step = stage.step
        seconds = (step.generation, step.judging, step.learning, step.push, step.total)
        table.add_row(
            stage.key,
            str(stage.steps),
            str(stage.responses),
            *(_seconds(value) for value in seconds),
            f"{stage.hours:.2f}",
        )
    return table


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value else "-"


def _counts(counts: object) -> str:
    assert isinstance(counts, dict)
    return " + ".join(f"{count} {name}" for name, count in counts.items()) or "-"
