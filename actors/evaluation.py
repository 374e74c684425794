"""Requests to builders and evaluators. Only records, so that a caller need not import an actor."""

from __future__ import annotations

from dataclasses import dataclass, field

from actors.log_fields import Fields
from evaluators.records import Artifact, BuildError, Candidate, Task
from evaluators.shared.extension import ExtensionRequest


@dataclass(frozen=True)
class BuildRequest:
    """A candidate to compile for a task's sizes, which is then judged at a preset.

    `extensions`: those that it asked for while it ran, and that were not built yet. `evictions`: how often its artifact
    was evicted before it was judged. `again`: whether it is to be judged although it has been.
    `log_fields`: of the step that asked for it (`actors.log_fields`).
    """

    task: Task
    candidate: Candidate
    preset: str
    extensions: tuple[ExtensionRequest, ...] = ()
    evictions: int = 0
    again: bool = False
    log_fields: Fields = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """The candidate's digest and the preset at which it is judged."""
        return (self.candidate.digest, self.preset)


@dataclass(frozen=True)
class EvaluationRequest:
    """A candidate to judge at a preset.

    `artifact`: a builder's result (None: it compiles nothing). `extensions`: those that it asked for while it ran, and
    that were not built yet. `passed_look`: whether a builder's look (`Evaluator.look`) found no failure. `evictions`:
    how often its artifact was evicted before it was judged. `again`: whether it is to be judged although it has been.
    `log_fields`: of the step that asked for it (`actors.log_fields`). `not_on`: a device that must not judge it
    (`Verdict.evaluator["device"]`), empty for none. `avoid`: the places in the pool of evaluators that have it.
    """

    task: Task
    candidate: Candidate
    preset: str
    artifact: Artifact | BuildError | None = None
    extensions: tuple[ExtensionRequest, ...] = ()
    passed_look: bool = False
    evictions: int = 0
    again: bool = False
    log_fields: Fields = field(default_factory=dict)
    not_on: str = ""
    avoid: tuple[int, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """The candidate's digest and the preset at which it is judged."""
        return (self.candidate.digest, self.preset)


@dataclass(frozen=True)
class SameDevice:
    """An evaluator's answer instead of a verdict: it has the device that must not judge the candidate. `place`: its own
    in the pool."""

    place: int
