"""The best programs as a page shows them: speed-ups, the evidence of their verdicts, where they come from, and how they
differ from the reference and from what their prompts showed."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from markupsafe import Markup

from evaluators.records import Estimate, Finding, KernelUse, Verdict
from orchestration.report import format as fmt
from orchestration.report.assemble import Report
from orchestration.report.code import Diff, difference, highlighted
from orchestration.report.lineage import Origin, Parent
from orchestration.run.kernels import Kernel


@dataclass(frozen=True)
class Node:
    """A program in a tree of ancestors."""

    words: str
    speedup: float | None
    digest: str
    parents: tuple[Node, ...]


@dataclass(frozen=True)
class ProgramView:
    """What a page shows of a program. `lineage`: None if its response is not stored."""

    title: str
    soft: str
    best: Estimate | None
    speedups: tuple[tuple[str, Estimate], ...]
    facts: Mapping[str, str]
    findings: tuple[Finding, ...]
    digest: str
    kernels: tuple[KernelUse, ...]
    kernels_soft: str
    lineage: Node | None
    born: str
    analysis: str
    design: str
    diffs: tuple[tuple[str, Diff], ...]
    code: tuple[Markup, ...]


def programs_of(report: Report) -> list[ProgramView]:
    """The fastest first, and those of marked tasks last. The title of each is its task."""
    ranked = sorted(report.kernels, key=lambda kernel: _rank(kernel, report.marks))
    return [_view(kernel, report) for kernel in ranked]


def judged_view(title: str, soft: str, best: Estimate | None, verdict: Verdict, source: str) -> ProgramView:
    """A program of which nothing is known but its text and its verdict."""
    trace = verdict.trace
    return ProgramView(
        title=title,
        soft=soft,
        best=best,
        speedups=tuple(sorted(verdict.speedups.items())),
        facts=facts_of(verdict),
        findings=verdict.guard,
        digest=verdict.candidate,
        kernels=trace.kernels if trace else (),
        kernels_soft=f"{fmt.seconds(trace.gpu_seconds)} on the GPU" if trace else "",
        lineage=None,
        born="",
        analysis="",
        design="",
        diffs=(),
        code=highlighted(source) if source else (),
    )


def _rank(kernel: Kernel, marks: Container[str]) -> tuple[bool, float, str]:
    """Kernels of marked tasks come last, because their speed means nothing."""
    best = kernel.verdict.best_baseline
    return kernel.task_id in marks, (-kernel.verdict.speedups[best].value if best else inf), kernel.task_id


def _view(kernel: Kernel, report: Report) -> ProgramView:
    verdict, candidate = kernel.verdict, kernel.candidate
    origin = report.origins.get(candidate.digest)
    reference = (origin.reference if origin else None) or report.references.get(kernel.task_id)
    best, soft = verdict.estimate_over("best"), f"{kernel.arch} · {candidate.author}"
    return replace(
        judged_view(kernel.task_id, soft, best, verdict, candidate.source),
        lineage=_root(candidate.author, candidate.digest, origin, verdict.speedup) if origin else None,
        born=_born(origin, dict(report.phases)) if origin else "",
        analysis=origin.analysis if origin else "",
        design=origin.design if origin else "",
        diffs=tuple(_diffs(candidate.source, reference, origin)),
    )


def _born(origin: Origin, labels: Mapping[str, str]) -> str:
    where = f"{labels.get(origin.phase, origin.phase)}, step {origin.step}, policy version {origin.policy_version}"
    if origin.repairs:
        return f"First proposed in {where}, as the repair of the program below."
    if not origin.parents:
        return f"First proposed in {where}, from a prompt without exemplars."
    return (
        f"First proposed in {where}. Its prompt showed these programs, with their speed-ups over the reference as "
        f"printed there."
    )


def _root(author: str, digest: str, origin: Origin, speedup: float | None) -> Node:
    """Each program stands in the tree with its ancestors once, and again only by its name."""
    shown = {digest}
    return Node(f"this program, {author}", speedup, digest, _nodes(origin, shown))


def _nodes(origin: Origin | None, shown: set[str]) -> tuple[Node, ...]:
    return tuple(_node(parent, shown) for parent in (origin.parents if origin else ()))


def _node(parent: Parent, shown: set[str]) -> Node:
    if parent.is_reference:
        return Node("the reference itself", parent.speedup, "", ())
    author, origin = parent.author or "a program", parent.origin
    if parent.digest in shown:
        return Node(f"{author}, as above", parent.speedup, parent.digest, ())
    shown.add(parent.digest)
    born = f", first in {origin.phase} step {origin.step}" if origin else ""
    return Node(f"{author}{born}", parent.speedup, parent.digest, _nodes(origin, shown))


def _diffs(source: str, reference: str | None, origin: Origin | None) -> Iterator[tuple[str, Diff]]:
    if reference is not None:
        yield "Difference from the reference", difference(reference, source)
    for index, parent in enumerate(origin.parents if origin else (), start=1):
        if parent.is_reference:
            continue
        speedup = f", {fmt.speed(parent.speedup)}" if parent.speedup else ""
        name = "the failing program" if origin and origin.repairs else f"exemplar {index}{speedup}"
        yield f"Difference from {name}", difference(parent.source, source)


def facts_of(verdict: Verdict) -> dict[str, str]:
    """How a verdict was reached, by name: the evidence that stands behind its figures."""
    facts: dict[str, str] = {}
    if timing := verdict.timing:
        for name, estimate in [("candidate", timing.candidate_seconds), ("reference", timing.reference_seconds)]:
            bounds = f"{fmt.seconds(estimate.low)} to {fmt.seconds(estimate.high)}"
            facts[name] = f"{fmt.seconds(estimate.value)} ({bounds})"
        facts["timing"] = f"{timing.pairs} pairs, stopped by {timing.stopped_by}"
        facts["two clocks"] = f"the judge's over the runner's: {100 * timing.clock_disagreement:+.1f}%"
        if timing.clocks:
            facts["GPU clocks"] = _clocks(verdict)
    if correctness := verdict.correctness:
        facts["correctness"] = (
            f"error {correctness.error:.2g} of {correctness.tolerance:.2g} tolerated, "
            f"on {correctness.trials} checked outputs"
        )
        if correctness.deterministic is not None:
            facts["deterministic"] = "yes" if correctness.deterministic else "no"
    if trace := verdict.trace:
        outside = f", {fmt.seconds(trace.outside_seconds)} outside the timed region" if trace.outside_seconds else ""
        facts["own kernels"] = (
            f"{fmt.share(trace.own_kernel_share)} of kernel time, on {trace.streams} stream(s){outside}"
        )
    if verdict.measurements:
        facts["measured again"] = ", then ".join(fmt.speed(estimate.value) for estimate in verdict.measurements)
    facts["judged as"] = verdict.strict.replace("_", " ")
    if verdict.cost:
        facts["seconds to judge"] = ", ".join(f"{name} {value:.2g}" for name, value in sorted(verdict.cost.items()))
    return {**facts, **{name: value for name, value in sorted(verdict.evaluator.items()) if value}}


def _clocks(verdict: Verdict) -> str:
    clocks = verdict.timing.clocks if verdict.timing else ()
    megahertz, celsius = [clock.sm_mhz for clock in clocks], [clock.celsius for clock in clocks]
    reasons = sorted({word for clock in clocks for word in clock.throttled_by.split()})
    throttled = f", throttled by {', '.join(reasons)}" if reasons else ", never throttled"
    return f"{min(megahertz)} to {max(megahertz)} MHz, {min(celsius)} to {max(celsius)} °C{throttled}"
