"""Who may use GPUs that roles share: one role at a time, so that no kernel is timed while anything else runs. Builders,
who time nothing, look at programs in the turns of all others.

Turns pass between roles that are idle; nothing is interrupted. Where roles have GPUs of their own, all go on at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from actors.pool import ActorPool
from orchestration.fleet.placement import ENGINE, EVALUATOR

_log = logging.getLogger(__name__)
_SLEEP_SECONDS = 120.0


class Turns:
    """Holds back the pools whose turn it is not. `sleeps`: engines free their memory while others are on their GPU."""

    def __init__(
        self,
        engines: ActorPool,
        evaluators: ActorPool,
        builders: ActorPool,
        *,
        share: str,
        sleeps: bool,
        on_learner_rest: Callable[[], None] = lambda: None,
    ) -> None:
        """`share` is `placement.share`. `on_learner_rest` is called before engines take their memory again."""
        self._engines, self._evaluators, self._builders = engines, evaluators, builders
        self._sleeps = sleeps and share != "none"
        self._on_learner_rest = on_learner_rest
        self.holder = ENGINE
        self.evaluators_wait = share == "all"
        """Whether verdicts have to wait until nothing is generated, and builders look at programs until then."""
        if self.evaluators_wait:
            evaluators.pause()

    def give_to(self, role: str) -> None:
        """Passes the turn. What is submitted to a pool whose turn it is not waits there."""
        if role == self.holder:
            return
        sleeps = self._sleeps and (role != EVALUATOR or self.evaluators_wait)
        if role == ENGINE and sleeps:
            self._on_learner_rest()  # may fail: then the turn stays where it is
            self._engines.broadcast("wake_up", timeout=_SLEEP_SECONDS)
        if self.evaluators_wait:
            (self._engines.resume if role == ENGINE else self._engines.pause)()
            (self._evaluators.resume if role == EVALUATOR else self._evaluators.pause)()
            (self._builders.pause if role == EVALUATOR else self._builders.resume)()
        if sleeps or self.evaluators_wait:
            self._engines.postpone_starts(role != ENGINE)  # of one that is lost in another's turn
        if role != ENGINE and sleeps:
            self._engines.broadcast("sleep", timeout=_SLEEP_SECONDS)  # one that sleeps goes on sleeping
        self.holder = role
