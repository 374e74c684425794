"""Verdicts on their way to a reward: those that jump or are suspect are reviewed. A person's decision always stands.

A reviewed program is compared with the nearest known hacks at once. A reward checker is asked in the background, so
that only the verdict itself waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from actors.generation import Completion
from configs.schema import GuardConfig
from evaluators.guard.cases import HackCases, Neighbours, Status
from evaluators.guard.ruling import Decision, Jump, Opinion, rule, with_word
from evaluators.records import Candidate, Outcome, Verdict
from orchestration.step.believed import BelievedSpeedups
from orchestration.step.checker import Question, question_about

_log = logging.getLogger(__name__)
_NOT_SHOWN = Opinion(Decision.DOUBT, "", "it is too long or too deep to be shown whole", "the reward checker")


class Answer(Protocol):
    """The answer to a question, now or later."""

    def done(self) -> bool: ...

    def result(self) -> Opinion | None: ...


class Checker(Protocol):
    """Sends questions to a reward checker."""

    def __call__(self, question: Question) -> Answer: ...

    def take(self, key: str, outcome: Sequence[Completion] | None) -> bool:
        """Takes the outcome of an engine's request, None if it failed; whether it was a question of this checker."""


@dataclass
class Reviewer:
    """Decides on fresh verdicts, and remembers the believed speed-ups of every task.

    `cases`: the known hacks. `references`: the sources of the tasks' references, by task id. `ask`: sends a question to
    a reward checker; without one the nearest known hacks decide.
    """

    config: GuardConfig
    cases: HackCases
    references: Mapping[str, str]
    ask: Checker | None = None
    _believed: BelievedSpeedups = field(default_factory=BelievedSpeedups)
    _asked: list[tuple[Candidate, Verdict, Neighbours, Answer]] = field(default_factory=list)
    _ready: list[tuple[Candidate, Verdict]] = field(default_factory=list)

    def best_of(self, task: str) -> float | None:
        """The best believed speed-up of a task, None without a right program."""
        return self._believed.best_of(task)

    def review_again(self, verdict: Verdict) -> Verdict:
        """A verdict that was reviewed before, changed if a person has decided on it since."""
        current = with_word(verdict, self._word_on(verdict))
        self.believe(current)
        return current

    def submit(self, candidate: Candidate, verdict: Verdict) -> None:
        """Takes a fresh verdict; `poll` returns it after its review."""
        word = self._word_on(verdict)
        if word in (Status.REJECTED, Status.CONFIRMED, Status.SEED) or not self._needs_review(verdict):
            self._ready.append((candidate, with_word(verdict, word)))
            return
        reference = self.references.get(verdict.task, "")
        kinds = [finding.kind for finding in verdict.deciding]
        neighbours = self.cases.nearest(candidate.source, kinds, reference)
        if self.ask is None:
            self._ready.append((candidate, rule(verdict, neighbours)))
            return
        try:
            question = question_about(candidate, verdict, reference, neighbours, self.best_of(verdict.task))
            if question is None:
                self._ready.append((candidate, rule(verdict, neighbours, _NOT_SHOWN)))
            else:
                self._asked.append((candidate, verdict, neighbours, self.ask(question)))
        except Exception:  # noqa: BLE001 - a program's text may break a question in any way, and no verdict may be lost
            _log.exception("no question can be asked about %s; the nearest known hacks decide", candidate.digest)
            self._ready.append((candidate, rule(verdict, neighbours)))

    def poll(self) -> list[tuple[Candidate, Verdict]]:
        """The verdicts whose review has ended since the last call. Never waits."""
        waiting = []
        for candidate, verdict, neighbours, answer in self._asked:
            if answer.done():
                self._ready.append((candidate, rule(verdict, neighbours, _opinion_of(answer))))
            else:
                waiting.append((candidate, verdict, neighbours, answer))
        self._asked, reviewed, self._ready = waiting, self._ready, []
        for _, verdict in reviewed:
            self.believe(verdict)
        return reviewed

    def take(self, key: str, outcome: Sequence[Completion] | None) -> bool:
        """Takes the outcome of an engine's request, None if it failed; whether it was a question of the checker."""
        return self.ask is not None and self.ask.take(key, outcome)

    def believe(self, verdict: Verdict) -> None:
        """Counts the speed-up of a reviewed verdict for its task if the verdict is `ok`, and otherwise no longer."""
        speedup = verdict.speedup if verdict.outcome is Outcome.OK else None
        self.believe_all([(verdict.task, verdict.candidate, speedup)])

    def believe_all(self, speedups: Iterable[tuple[str, str, float | None]]) -> None:
        """The same for many: task, digest of the candidate, and its speed-up if the verdict is `ok`."""
        self._believed.put(speedups)

    def decided(self) -> set[str]:
        """The digests of all programs that `review_again` may change the verdict on."""
        cases = self.cases.all() if self.config.enabled else []
        return {case.id for case in cases if case.status is not Status.SUSPECT}

    def _word_on(self, verdict: Verdict) -> Status | None:
        return self.cases.word_on(verdict.candidate) if self.config.enabled else None

    def jumps(self, verdict: Verdict) -> bool:
        """Whether a verdict's speed-up is so high that it needs a second look (`guard.jump`)."""
        jump = Jump(self.config.jump)
        return verdict.speedup is not None and jump.seen_in(verdict.speedup, self.best_of(verdict.task))

    def _needs_review(self, verdict: Verdict) -> bool:
        if not self.config.enabled:
            return False
        return verdict.outcome is Outcome.SUSPECT or self.jumps(verdict)


def _opinion_of(answer: Answer) -> Opinion | None:
    try:
        return answer.result()
    except Exception:  # noqa: BLE001 - whatever failed, no verdict may be lost
        _log.exception("a reward checker failed; the nearest known hacks decide")
        return None
