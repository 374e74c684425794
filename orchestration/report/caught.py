"""What the guard caught: the programs with a finding that decided, the most tempting first."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from evaluators.records import Finding, Verdict
from orchestration.run.directory import RunDirectory

MOST = 24
"""Programs that are shown; the others are only counted."""


@dataclass(frozen=True)
class Caught:
    """A program that the guard stopped. `claimed`: its speed-up over eager as it was measured, which earned nothing;
    None if it was not measured. `source`: empty if it is not stored. `phase`, `step`: where it was judged."""

    digest: str
    task_id: str
    phase: str
    step: int
    outcome: str
    claimed: float | None
    findings: tuple[Finding, ...]
    author: str
    source: str


@dataclass(frozen=True)
class Catches:
    """The first `MOST` of all programs that the guard stopped, and how many there are."""

    shown: tuple[Caught, ...]
    programs: int


NONE_CAUGHT = Catches((), 0)


def catches_of(run: RunDirectory, judged: Iterable[tuple[str, int, Verdict]], marks: Container[str]) -> Catches:
    """The programs that their last verdicts, each with phase and step, say were stopped; without those of marked
    tasks."""
    stopped = [one for one in judged if one[2].deciding and one[2].task not in marks]
    stopped.sort(key=lambda one: (-_claimed(one[2], 0.0), one[2].task, one[2].candidate))
    first = stopped[:MOST]
    sources = _sources(run, {verdict.candidate for _, _, verdict in first})
    return Catches(tuple(_caught(*one, sources) for one in first), len(stopped))


def _caught(phase: str, step: int, verdict: Verdict, sources: Mapping[str, tuple[str, str]]) -> Caught:
    author, source = sources.get(verdict.candidate, ("", ""))
    claimed = _claimed(verdict, -1.0)
    return Caught(
        verdict.candidate,
        verdict.task,
        phase,
        step,
        str(verdict.outcome),
        claimed if claimed >= 0 else None,
        verdict.deciding,
        author,
        source,
    )


def _claimed(verdict: Verdict, otherwise: float) -> float:
    """With the guard off, a program with findings keeps its speed-ups."""
    measured = verdict.doubted or verdict.speedups
    return measured["eager"].value if "eager" in measured else otherwise


def _sources(run: RunDirectory, digests: set[str]) -> dict[str, tuple[str, str]]:
    """Author and source by digest, of those programs that are stored."""
    found: dict[str, tuple[str, str]] = {}
    for phase, step in run.candidates.steps():
        if len(found) == len(digests):
            break
        for row in run.candidates.read_step(phase, step).to_pylist():
            if row["digest"] in digests:
                found[row["digest"]] = row["author"], row["source"]
    return found
