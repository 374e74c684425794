"""The ways in which an evaluation can fail: by the candidate's doing, or by ours."""

from __future__ import annotations

from evaluators.records import Outcome
from evaluators.shared.extension import ExtensionRequest

EVICTED = "its artifact was evicted before it was judged: raise evaluator.build_cache_gib"
MOST_EVICTIONS = 3  # of one candidate's artifact before it is judged


class InfraError(Exception):
    """The evaluator itself failed. The candidate is not to blame."""


class ContainmentError(InfraError):
    """The host does not contain programs as the user demands. The message names what is missing, and the remedies."""


class RunnerFailure(Exception):
    """The program failed instead of answering. `outcome` and `message` are those of its verdict; `stage` is where it
    failed: `run`, or a stage of a build. `kind`: the name of the exception's class; empty if it raised none."""

    def __init__(self, outcome: Outcome, message: str, stage: str = "run", kind: str = "") -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message
        self.stage = stage
        self.kind = kind


class Unbuilt(Exception):
    """A candidate asked, as it ran, for an extension that nobody has built; or its artifact was evicted before it ran
    (`request` is None). It is to be built, and then measured again."""

    def __init__(self, request: ExtensionRequest | None) -> None:
        super().__init__(request)  # so that it can be pickled
        self.request = request

    def __str__(self) -> str:
        return f"extension {self.request.name} is not built" if self.request else EVICTED
