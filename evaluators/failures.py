"""How an evaluation can fail: by the candidate's doing, or by ours."""

from __future__ import annotations

from evaluators.records import Outcome


class InfraError(Exception):
    """The evaluator itself failed; the candidate is not to blame."""


class RunnerFailure(Exception):
    """What the program on the other side did instead of answering."""

    def __init__(self, outcome: Outcome, message: str, stage: str = "run") -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message
        self.stage = stage
