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
        self._answered: dict[Key, list[Verdict]] = {}

    def ask(self, key: Key, verdict: Verdict) -> bool:
        """Whether a verdict, whose speed-up jumps, can be confirmed; it waits then. One that is reused cannot.

        Nobody is asked about a candidate twice before `conclude`.
        """
        if key in self._answered or REUSED_FROM in verdict.evaluator or not verdict.evaluator.get(DEVICE):
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
        self._answered.pop(key, None)

    def settle(self, key: Key, second: Verdict | None) -> list[Verdict]:
        """The verdicts of both devices on a jump, which are measurements like any other (`evaluators.timing.new_best`);
        empty if none was asked for.

        If there is no second one (None), or it is our failure, the first one stands alone, with a hint.
        """
        asked = self._asked.pop(key, None)
        if asked is None:
            return []
        first = asked.verdict
        assert first.speedup is not None, "only a speed-up jumps"
        if second is None or second.outcome is Outcome.INFRA:
            self._answered[key] = []
            return [_with(first, second_opinion(first.arch, first.speedup, None))]
        self._answered[key] = [first, second]
        return [first, second]

    def conclude(self, key: Key, verdict: Verdict) -> Verdict:
        """The verdict that a candidate's measurements come to, with what the two devices say of it, if two were asked.

        Its speed-up must agree with that of each device, however often it was measured. A verdict that is not `ok`
        stays as it is.
        """
        answers = self._answered.pop(key, [])
        if not answers or verdict.speedup is None:
            return verdict
        device = verdict.evaluator.get(DEVICE, "")
        others = [answer.evaluator.get(DEVICE, "") for answer in answers]
        by = {**verdict.evaluator, CONFIRMED_BY: next(other for other in others if other != device)}
        opinions = [second_opinion(verdict.arch, verdict.speedup, answer.speedup) for answer in answers]
        return _with(replace(verdict, evaluator=by), next(filter(None, opinions), None))


def _with(verdict: Verdict, opinion: Finding | None) -> Verdict:
    """The verdict with what another device says of it, and without the hint of an evaluator that has nobody to ask
    (preset `paper`)."""
    findings = tuple(finding for finding in verdict.guard if finding.kind != CONFIRMATION)
    if opinion is None:
        return replace(verdict, guard=findings)
    if opinion.severity == HINT:
        return replace(verdict, guard=(*findings, opinion))
    return replace(verdict, guard=findings).doubted_by(opinion)
