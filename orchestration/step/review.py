"""Verdicts on their way to a reward: what a person has said stands, what jumps or is suspect is looked at again.

The nearest known hacks are compared at once; a reward checker is asked in the background, so that nothing waits for it
but the verdict itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from actors.generation import Completion
from configs.schema import GuardConfig
from evaluators.guard.cases import HackCases, Neighbours, Status
from evaluators.guard.ruling import Decision, Jump, Opinion, rule, with_word
from evaluators.records import Candidate, Outcome, Verdict
from orchestration.step.checker import Question, question_about

_log = logging.getLogger(__name__)
_NOT_SHOWN = Opinion(Decision.DOUBT, "", "it is too long or too deep to be shown whole", "the reward checker")


class Asked(Protocol):
    """A question under way."""

    def done(self) -> bool: ...

    def result(self) -> Opinion | None: ...


class Checker(Protocol):
    """Sends questions to a reward checker."""

    def __call__(self, question: Question) -> Asked: ...

    def take(self, key: str, outcome: Sequence[Completion] | None) -> bool:
        """Whether what an engine has answered to the request of that key was a question of this checker."""


@dataclass
class Reviewer:
    """Holds what a run knows about hacks and the believed speed-ups of every task.

    `references`: sources of the tasks' references by task id. `ask` sends a question to a reward checker; without one
    the nearest known hacks decide.
    """

    config: GuardConfig
    cases: HackCases
    references: Mapping[str, str]
    ask: Checker | None = None
    _believed: dict[str, dict[str, float]] = field(default_factory=dict)
    _asked: list[tuple[Candidate, Verdict, Neighbours, Asked]] = field(default_factory=list)
    _ready: list[tuple[Candidate, Verdict]] = field(default_factory=list)

    @property
    def pending(self) -> int:
        """Verdicts that wait for a checker's answer."""
        return len(self._asked)

    @property
    def best(self) -> dict[str, float]:
        """The best believed speed-up of every task that has one."""
        return {task: max(speedups.values()) for task, speedups in self._believed.items() if speedups}

    def review_again(self, verdict: Verdict) -> Verdict:
        """A verdict that was ruled on before, as a person's word makes it by now."""
        spoken = with_word(verdict, self._word_on(verdict))
        self.believe(spoken)
        return spoken

    def submit(self, candidate: Candidate, verdict: Verdict) -> None:
        """Takes a fresh verdict; `poll` gives it back, ruled on."""
        word = self._word_on(verdict)
        spoken = with_word(verdict, word)
        if word in (Status.REJECTED, Status.CONFIRMED, Status.SEED) or not self._needs_look(verdict):
            self._ready.append((candidate, spoken))
            return
        reference = self.references.get(verdict.task, "")
        kinds = [finding.kind for finding in verdict.deciding]
        neighbours = self.cases.nearest(candidate.source, kinds, reference)
        if self.ask is None:
            self._ready.append((candidate, rule(verdict, neighbours, self.config.near)))
            return
        try:
            question = question_about(candidate, verdict, reference, neighbours, self.best.get(verdict.task))
            if question is None:
                self._ready.append((candidate, rule(verdict, neighbours, self.config.near, _NOT_SHOWN)))
            else:
                self._asked.append((candidate, verdict, neighbours, self.ask(question)))
        except Exception:  # noqa: BLE001 - whatever a program makes of a question: no verdict may be lost
            _log.exception("no question can be asked about %s; the nearest known hacks decide", candidate.digest)
            self._ready.append((candidate, rule(verdict, neighbours, self.config.near)))

    def poll(self) -> list[tuple[Candidate, Verdict]]:
        """The verdicts that are ruled on by now. Never waits."""
        waiting = []
        for candidate, verdict, neighbours, asked in self._asked:
            if asked.done():
                self._ready.append((candidate, rule(verdict, neighbours, self.config.near, _opinion_of(asked))))
            else:
                waiting.append((candidate, verdict, neighbours, asked))
        self._asked, done, self._ready = waiting, self._ready, []
        for _, verdict in done:
            self.believe(verdict)
        return done

    def take(self, key: str, outcome: Sequence[Completion] | None) -> bool:
        """Whether what an engine sampled answers a question of the checker; None for what came to nothing."""
        return self.ask is not None and self.ask.take(key, outcome)

    def believe(self, verdict: Verdict) -> None:
        """Counts a ruled verdict's speed-up towards its task's best, or no longer."""
        believed = self._believed.setdefault(verdict.task, {})
        if verdict.outcome is Outcome.OK and verdict.speedup is not None:
            believed[verdict.candidate] = verdict.speedup
        else:
            believed.pop(verdict.candidate, None)

    def _word_on(self, verdict: Verdict) -> Status | None:
        return self.cases.word_on(verdict.candidate) if self.config.enabled else None

    def _needs_look(self, verdict: Verdict) -> bool:
        if not self.config.enabled:
            return False
        if verdict.outcome is Outcome.SUSPECT:
            return True
        jump = Jump(self.config.jump, self.config.jump_over_best)
        return verdict.speedup is not None and jump.seen_in(verdict.speedup, self.best.get(verdict.task))


def _opinion_of(asked: Asked) -> Opinion | None:
    try:
        return asked.result()
    except Exception:  # noqa: BLE001 - likewise
        _log.exception("a reward checker failed; the nearest known hacks decide")
        return None
