"""Keeps the programs that the guard gave no reward: a person can decide on them, and later programs are compared with
them."""

from __future__ import annotations

from collections.abc import Mapping

from evaluators.guard.cases import HackCases, case_of
from evaluators.records import Candidate, Outcome, Verdict


def quarantine(
    cases: HackCases,
    candidates: Mapping[str, Candidate],
    verdicts: Mapping[str, Verdict],
    origin: str,
    references: Mapping[str, str],
) -> int:
    """Adds the `suspect` and `hack` candidates of a step to the hack-case database; returns how many were new.

    `candidates`, `verdicts`: by digest. `origin`: run and phase. `references`: the sources of the tasks' references, by
    task id.
    """
    doubted = [
        case_of(candidates[digest], verdict, origin, references.get(verdict.task, ""))
        for digest, verdict in verdicts.items()
        if verdict.outcome in (Outcome.SUSPECT, Outcome.HACK) and digest in candidates
    ]
    return cases.add(doubted) if doubted else 0
