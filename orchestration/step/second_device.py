"""Another device of the same kind confirms a speed-up that jumps, before it is believed (CUDA-L1 section 2.4.4).

The evaluators of a pool do not know of each other. So a candidate goes back to the pool with the device that must not
judge it again, and an evaluator that has it says so at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from evaluators.records import HINT, Finding, Outcome, Verdict
from evaluators.stored.verdicts import CONFIRMED_BY, DEVICE, REUSED_FROM
from evaluators.timing.paper import CONFIRMATION, second_opinion

Key = tuple[str, str]


@dataclass
class _Asked:
    """A verdict that waits to be confirmed. `places`: of evaluators that have the device that it is from."""

    verdict: Verdict
    places: tuple[int, ...] = ()


class SecondDevice:
    """The verdicts of one pool of evaluators that wait for another device, by candidate and preset."""

    def __init__(self) -> None:
        self._asked: dict[Key, _Asked] = {}

    def ask(self, key: Key, verdict: Verdict) -> bool:
        """Whether a verdict, whose speed-up jumps, can be confirmed; it waits then. One that is reused cannot."""
        if REUSED_FROM in verdict.evaluator or not verdict.evaluator.get(DEVICE):
            return False
        self._asked[key] = _Asked(verdict)
        return True

    def what_to_avoid(self, key: Key) -> tuple[str, tuple[int, ...]]:
        """The device that must not judge a candidate, empty for none, and the places of evaluators that have it."""
        asked = self._asked.get(key)
        return (asked.verdict.evaluator[DEVICE], asked.places) if asked else ("", ())

    def is_refused(self, key: Key, place: int) -> bool:
        """Notes that the evaluator in a place has the device that must not judge a candidate. True if it was the last
        choice, as it was known to have it, so there is no other device."""
        asked = self._asked[key]
        if place in asked.places:
            return True
        asked.places = (*asked.places, place)
        return False

    def forget(self, key: Key) -> None:
        """A candidate is wanted no more."""
        self._asked.pop(key, None)

    def settle(self, key: Key, second: Verdict | None) -> Verdict | None:
        """The verdict that waited, after that of another device, None if there is none; None if no verdict waited.

        A second verdict that is not `ok` decides, unless it is our failure: then the first one stands, with a hint.
        """
        asked = self._asked.pop(key, None)
        if asked is None:
            return None
        first = asked.verdict
        assert first.speedup is not None, "only a speed-up jumps"
        if second is None or second.outcome is Outcome.INFRA:
            return _with(first, second_opinion(first.arch, first.speedup, None))
        cost = {**first.cost, "total": first.cost.get("total", 0.0) + second.cost.get("total", 0.0)}
        if second.speedup is None:
            return replace(second, cost=cost)
        by = {**first.evaluator, CONFIRMED_BY: second.evaluator.get(DEVICE, "")}
        opinion = second_opinion(first.arch, first.speedup, second.speedup)
        return _with(replace(first, evaluator=by, cost=cost), opinion)


def _with(verdict: Verdict, opinion: Finding | None) -> Verdict:
    """The verdict with what another device says of it, and without the hint of an evaluator that has nobody to ask
    (preset `paper`)."""
    findings = tuple(finding for finding in verdict.guard if finding.kind != CONFIRMATION)
    if opinion is None:
        return replace(verdict, guard=findings)
    if opinion.severity == HINT:
        return replace(verdict, guard=(*findings, opinion))
    return replace(verdict, guard=findings).doubted_by(opinion)
