"""One verdict, for a person in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from evaluators.records import Estimate, Outcome, Verdict

_STYLES = {Outcome.OK: "bold green", Outcome.SUSPECT: "bold yellow", Outcome.INFRA: "bold magenta"}


def print_verdict(verdict: Verdict, console: Console) -> None:
    """Outcome, speed-ups with intervals, correctness, times and what was found."""
    style = _STYLES.get(verdict.outcome, "bold red")
    console.print(f"[{style}]{verdict.outcome}[/]  {verdict.task} on {verdict.arch}  ({verdict.candidate})")
    if verdict.message:
        console.print(verdict.message, markup=False, highlight=False)
    table = Table.grid(padding=(0, 2))
    for name, estimate in verdict.speedups.items():
        table.add_row(f"speed-up over {name}", f"{estimate.value:.3f}x", _interval(estimate, 1.0))
    if verdict.timing is not None:
        for name, seconds in (
            ("reference", verdict.timing.reference_seconds),
            ("candidate", verdict.timing.candidate_seconds),
        ):
            table.add_row(f"{name}, ms a call", f"{seconds.value * 1e3:.3f}", _interval(seconds, 1e3))
        table.add_row("pairs", str(verdict.timing.pairs), f"stopped by {verdict.timing.stopped_by}")
        table.add_row("clocks differ by", f"{verdict.timing.clock_disagreement:.1%}")
    if verdict.correctness is not None:
        found = verdict.correctness
        table.add_row("largest relative error", f"{found.error:.1e}", f"{found.tolerance:.1e} allowed")
        table.add_row("outputs compared", str(found.trials))
    for finding in verdict.guard:
        table.add_row(finding.severity, finding.kind, finding.message)
    table.add_row("measured with", verdict.evaluator.get("preset", ""), verdict.evaluator.get("containment", ""))
    if "total" in verdict.cost:
        table.add_row("seconds", f"{verdict.cost['total']:.2f}")
    console.print(table)


def _interval(estimate: Estimate, scale: float) -> str:
    return f"[{estimate.low * scale:.3f}, {estimate.high * scale:.3f}]".replace("[", "\\[")
