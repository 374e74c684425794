"""How an evaluation can fail: by the candidate's doing, or by ours."""

from __future__ import annotations

from evaluators.records import Outcome
from evaluators.shared.extension import ExtensionRequest


class InfraError(Exception):
    """The evaluator itself failed; the candidate is not to blame."""


class RunnerFailure(Exception):
    """What the program on the other side did instead of answering."""

    def __init__(self, outcome: Outcome, message: str, stage: str = "run") -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message
        self.stage = stage


class Unbuilt(Exception):
    """A candidate that is measured asked for an extension that nobody has built: to be built, and measured again."""

    def __init__(self, request: ExtensionRequest) -> None:
        super().__init__(request)  # so that it can be pickled
        self.request = request

    def __str__(self) -> str:
        return f"extension {self.request.name} is not built"
