"""Another device of the same kind confirms a speed-up that jumps, before it is believed (CUDA-L1 section 2.4.4).

The evaluators of a pool do not know of each other. So a candidate goes back to the pool with the devices that must not
judge it again, and an evaluator that has one of them says so at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from evaluators.records import HINT, SUSPECT, Finding, Outcome, Verdict
from evaluators.stored.verdicts import CONFIRMED_BY, DEVICE, REUSED_FROM
from evaluators.timing.paper import agree

CONFIRMATION = "confirmation"
"""The kind of finding that the lack of a confirmation adds to a verdict."""

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

    def what_to_avoid(self, key: Key) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The devices that must not judge a candidate, and the places of evaluators that are known to have them."""
        asked = self._asked.get(key)
        return ((asked.verdict.evaluator[DEVICE],), asked.places) if asked else ((), ())

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
        if second is None or second.outcome is Outcome.INFRA:
            why = f"no second {first.arch} is there" if second is None else f"a second {first.arch} gave no verdict"
            finding = Finding(CONFIRMATION, HINT, f"{first.speedup:.2f}x is not confirmed: {why}")
            return replace(first, guard=(*_other_findings(first), finding))
        cost = {**first.cost, "total": first.cost.get("total", 0.0) + second.cost.get("total", 0.0)}
        if second.speedup is None:
            return replace(second, cost=cost)
        assert first.speedup is not None, "only a speed-up jumps"
        by = {**first.evaluator, CONFIRMED_BY: second.evaluator.get(DEVICE, "")}
        both = replace(first, evaluator=by, cost=cost, guard=_other_findings(first))
        if agree(first.speedup, second.speedup):
            return both
        message = f"a second {first.arch} measured {second.speedup:.2f}x, not {first.speedup:.2f}x"
        return both.doubted_by(Finding(CONFIRMATION, SUSPECT, message))


def _other_findings(verdict: Verdict) -> tuple[Finding, ...]:
    """Without the hint of an evaluator that has nobody to ask (preset `paper`)."""
    return tuple(finding for finding in verdict.guard if finding.kind != CONFIRMATION)
