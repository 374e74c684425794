"""Prints one verdict in a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from rich.console import Console
from rich.table import Table

from evaluators.records import (
    BLIND_TASK,
    DROP_IN,
    VALUES,
    ClockSample,
    Correctness,
    Estimate,
    Outcome,
    Timing,
    Trace,
    Verdict,
)

_STYLES = {Outcome.OK: "bold green", Outcome.SUSPECT: "bold yellow", Outcome.INFRA: "bold magenta"}
_STRICTNESS = {DROP_IN: "strides too, under new weights", VALUES: "any strides, under the weights of construction"}
_KERNELS = 5
_NAME_CHARACTERS = 48
_MICROSECONDS_BELOW = 1e-4  # seconds; shorter times are shown in µs

Row = tuple[str, ...]


def print_verdict(verdict: Verdict, console: Console) -> None:
    """Prints outcome, speed-ups with intervals, times, clocks, correctness, kernels and findings."""
    style = _STYLES.get(verdict.outcome, "bold red")
    console.print(f"[{style}]{verdict.outcome}[/]  {verdict.task} on {verdict.arch}  ({verdict.candidate})")
    if verdict.message:
        console.print(verdict.message, markup=False, highlight=False)
    for finding in verdict.guard:
        if finding.kind == BLIND_TASK:
            console.print(finding.message, style="bold yellow", markup=False, highlight=False)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in _rows(verdict):
        table.add_row(*row)
    console.print(table)


def _rows(verdict: Verdict) -> Iterator[Row]:
    yield from _speedups(verdict)
    if verdict.timing is not None:
        yield from _timing(verdict.timing)
        if verdict.timing.clocks:
            yield from _clocks(verdict.timing.clocks)
    if verdict.correctness is not None:
        yield from _correctness(verdict.correctness)
    if verdict.trace is not None:
        yield from _trace(verdict.trace)
    for finding in (one for one in verdict.guard if one.kind != BLIND_TASK):
        yield _plain(finding.severity), _plain(finding.kind), _plain(finding.message)
    yield "measured with", verdict.evaluator.get("preset", ""), _plain(verdict.evaluator.get("containment", ""))
    yield "compared as", verdict.strict, _STRICTNESS.get(verdict.strict, "")
    if "total" in verdict.cost:
        yield "seconds", f"{verdict.cost['total']:.2f}"


def _speedups(verdict: Verdict) -> Iterator[Row]:
    for name, estimate in verdict.speedups.items():
        label = f"speed-up over {name}" if name == "eager" else f"  over {name}"
        yield label, f"{estimate.value:.3f}x", _interval(estimate, 1.0)
    best = verdict.best_baseline
    if best is not None and len(verdict.speedups) > 1:
        yield "  over the best baseline", f"{verdict.speedups[best].value:.3f}x", best


def _timing(timing: Timing) -> Iterator[Row]:
    times = {"reference": timing.reference_seconds, "candidate": timing.candidate_seconds}
    is_short = min(estimate.value for estimate in times.values()) < _MICROSECONDS_BELOW
    unit, scale = ("µs", 1e6) if is_short else ("ms", 1e3)
    for name, seconds in times.items():
        yield f"{name}, {unit} a call", f"{seconds.value * scale:.3f}", _interval(seconds, scale)
    yield "pairs", str(timing.pairs), f"stopped by {timing.stopped_by}"
    yield "clocks differ by", f"{timing.clock_disagreement:.1%}"


def _clocks(samples: tuple[ClockSample, ...]) -> Iterator[Row]:
    megahertz = [sample.sm_mhz for sample in samples]
    reasons = Counter(chain.from_iterable(sample.throttled_by.split() for sample in samples))
    throttled = ", ".join(f"{name} ({count} of {len(samples)})" for name, count in reasons.most_common())
    yield "SM clock, MHz", f"{min(megahertz)} to {max(megahertz)}", f"throttled by {throttled or 'nothing'}"


def _correctness(correctness: Correctness) -> Iterator[Row]:
    yield "largest relative error", f"{correctness.error:.1e}", f"{correctness.tolerance:.1e} allowed"
    yield "outputs compared", str(correctness.trials)
    if correctness.deterministic is not None:
        yield "deterministic", "yes" if correctness.deterministic else "no"


def _trace(trace: Trace) -> Iterator[Row]:
    streams = f"{trace.streams} stream" + ("" if trace.streams == 1 else "s")
    yield (
        "own kernels",
        f"{trace.own_kernel_share:.0%}",
        f"of kernel time; GPU busy {trace.gpu_seconds * 1e6:.1f} µs, {streams}",
    )
    total = sum(use.seconds for use in trace.kernels)
    for use in trace.kernels[:_KERNELS]:
        calls = f" x{use.calls}" if use.calls > 1 else ""
        room = _NAME_CHARACTERS - len(calls)
        name = use.name if len(use.name) <= room else use.name[: room - 1] + "…"
        origin = "  own" if use.own else "  library"
        yield origin, f"{use.seconds / total:.0%}" if total else "", _plain(name + calls)


def _interval(estimate: Estimate, scale: float) -> str:
    return _plain(f"[{estimate.low * scale:.3f}, {estimate.high * scale:.3f}]")


def _plain(text: str) -> str:
    """Escapes text that a program may have chosen, so that rich shows it as it is."""
    return text.replace("\\", "\\\\").replace("[", "\\[")
