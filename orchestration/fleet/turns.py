"""Who may use GPUs that roles share: one role at a time, so that no kernel is timed while anything else runs.

Builders time nothing, so they look at programs in the turns of all others. Turns pass between idle roles; nothing is
interrupted. If roles have GPUs of their own, all work at once.

A step's programs are all looked at first, and then measured. Where there are many more, such as those of teachers,
evaluators take over whenever `ENOUGH` wait for them, so that verdicts come, and are kept, from the beginning on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from actors.pool import ActorPool
from orchestration.fleet.placement import ENGINE, EVALUATOR

_log = logging.getLogger(__name__)
_SLEEP_SECONDS = 120.0

ENOUGH = 64
"""Programs that wait for evaluators, for which builders that have more of them pause. A change of turns takes as long
as the slowest look under way, so it should not come too often."""


class Turns:
    """Holds back the pools whose turn it is not."""

    def __init__(
        self,
        engines: ActorPool | None,
        evaluators: ActorPool,
        builders: ActorPool,
        *,
        share: str,
        sleeps: bool,
        on_learner_rest: Callable[[], None] = lambda: None,
    ) -> None:
        """`engines`: None if the run has none; roles then take no turns. `share`: `placement.share`. `sleeps`:
        engines free their memory while others use their GPU. `on_learner_rest` is called before engines take their
        memory again."""
        self._engines, self._evaluators, self._builders = engines, evaluators, builders
        self._sleeps = sleeps and share != "none"
        self._on_learner_rest = on_learner_rest
        self.holder = ENGINE
        self.takes_turns = share != "none"
        self.evaluators_wait = share == "all"
        """Whether evaluators wait until nothing is generated, and builders look at programs until then."""
        if self.evaluators_wait:
            evaluators.pause()

    def give_to(self, role: str) -> None:
        """Passes the turn. Work that is submitted to a pool whose turn it is not waits there."""
        if role == self.holder:
            return
        if self._engines is None:
            self.holder = role
            return
        sleeps = self._sleeps and (role != EVALUATOR or self.evaluators_wait)
        if role == ENGINE and sleeps:
            self._on_learner_rest()  # may raise: the turn is then not passed
            self._engines.broadcast("wake_up", timeout=_SLEEP_SECONDS)
        if self.evaluators_wait:
            (self._engines.resume if role == ENGINE else self._engines.pause)()
            (self._evaluators.resume if role == EVALUATOR else self._evaluators.pause)()
            (self._builders.pause if role == EVALUATOR else self._builders.resume)()
        if sleeps or self.evaluators_wait:
            self._engines.members.postpone_starts(role != ENGINE)  # if an engine is lost in another role's turn
        self.holder = role  # before engines sleep: if the broadcast raises, some of them do, and have to be woken
        if role != ENGINE and sleeps:
            self._engines.broadcast("sleep", timeout=_SLEEP_SECONDS)  # an engine that sleeps already goes on

    def pass_on(self, *, has_prompts: bool) -> None:
        """Passes the turn between evaluators and the others, if one side has work and the other has none.

        `has_prompts`: whether there are prompts that engines could begin with.
        """
        if not self.evaluators_wait or self._engines is None:
            return
        engines_have_work = bool(self._engines.pending or has_prompts)
        others_have_work = engines_have_work or bool(self._builders.pending)
        if self.holder == EVALUATOR:
            if others_have_work and not self._evaluators.pending:
                self.give_to(ENGINE)
        elif self._evaluators.pending and not others_have_work:
            self.give_to(EVALUATOR)
        elif self.holder == ENGINE:
            self._hold_builders(self._evaluators.pending >= ENOUGH and not engines_have_work)

    def _hold_builders(self, enough: bool) -> None:
        """Passes the turn to evaluators, for whom `enough` programs wait, once no look is under way."""
        (self._builders.pause if enough else self._builders.resume)()
        if enough and not self._builders.load.is_busy:
            self.give_to(EVALUATOR)
