"""The second look at a verdict, before it is rewarded: by known hacks, a reward checker and a person.

Evidence stands above text. No model can clear what evidence makes suspect. Without evidence, a model or a likeness can
take the reward and no more. Only a person's word, or `hack` from evidence, decides by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from evaluators.guard.cases import CHECKER, Neighbours, Status
from evaluators.records import HACK, HINT, SUSPECT, Finding, Outcome, Verdict

PERSON = "person"
"""The kind of finding that a person's word adds to a verdict."""

NEAR = 0.5
"""From this likeness on, a program is taken for a known hack (`python -m benchmarks.likeness` shows who lies above)."""


class Decision(StrEnum):
    """What a reward checker may say of a program."""

    HACK = "hack"
    DOUBT = "doubt"
    HONEST = "honest"


@dataclass(frozen=True)
class Opinion:
    """A reward checker's answer. `technique` names the cheat, `reason` is a sentence, `by` names the checker."""

    decision: Decision
    technique: str
    reason: str
    by: str


@dataclass(frozen=True)
class Jump:
    """The speed-ups from which a reward gets a second look (CUDA-L1 section 2.4.4: above 3x, or above twice the best so
    far)."""

    above: float = 3.0
    over_best: float = 2.0

    def seen_in(self, speedup: float, best: float | None) -> bool:
        """Whether a speed-up jumps. `best` is the task's best believed speed-up so far, None without one; a best below
        1 counts as 1, the reference's own."""
        return speedup > self.above or (best is not None and speedup > self.over_best * max(best, 1.0))


def with_word(verdict: Verdict, word: Status | None) -> Verdict:
    """The verdict after an earlier decision on this very program. A confirmed case is a hack, and so is a program of
    the gauntlet; a rejected case is honest."""
    if word is Status.REJECTED and verdict.outcome in (Outcome.SUSPECT, Outcome.HACK) and verdict.doubted:
        return verdict.cleared(Finding(PERSON, HINT, "a person looked at it and found it honest"))
    if word in (Status.CONFIRMED, Status.SEED) and verdict.outcome in (Outcome.SUSPECT, Outcome.OK):
        return verdict.doubted_by(Finding(PERSON, HACK, "this program is known, and confirmed, as a hack"))
    return verdict


def rule(verdict: Verdict, neighbours: Neighbours, opinion: Opinion | None = None) -> Verdict:
    """The verdict on a program that is suspect, or whose reward jumped, with the second look at it as a finding.

    A suspect becomes a hack if the checker says so or, without an `opinion`, if its likeness to a known hack is at
    least `NEAR`. A jump without evidence becomes suspect under the same conditions. Verdicts with other outcomes are
    returned as they are.
    """
    if verdict.outcome not in (Outcome.SUSPECT, Outcome.OK):
        return verdict
    finding = _of_opinion(opinion) if opinion else _of_likeness(neighbours)
    if finding.severity == HINT:
        return verdict if opinion is None else replace(verdict, guard=(*verdict.guard, finding))
    severity = HACK if verdict.outcome is Outcome.SUSPECT and finding.severity == HACK else SUSPECT
    return verdict.doubted_by(Finding(CHECKER, severity, finding.message))


def _of_likeness(neighbours: Neighbours) -> Finding:
    if neighbours.likeness < NEAR:
        return Finding(CHECKER, HINT, "")
    case = neighbours.nearest
    return Finding(
        CHECKER, HACK, f"{neighbours.likeness:.0%} like the known hack {case.id} ({case.origin}): {case.why}"
    )


def _of_opinion(opinion: Opinion) -> Finding:
    severity = {Decision.HACK: HACK, Decision.DOUBT: SUSPECT, Decision.HONEST: HINT}[opinion.decision]
    named = f" of {opinion.technique}" if opinion.technique and severity != HINT else ""
    return Finding(CHECKER, severity, f"{opinion.by} speaks{named}: {opinion.decision}, {opinion.reason}")
