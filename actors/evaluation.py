"""What builders and evaluators are asked. Records alone, so that whoever asks need not import an actor."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.records import Artifact, BuildError, Candidate, Task
from evaluators.shared.extension import ExtensionRequest


@dataclass(frozen=True)
class BuildRequest:
    """A candidate to compile for a task's sizes.

    `extensions`: those that it asked for as it ran, and that were not built yet. `preset`: the one that it is to be
    judged at.
    """

    task: Task
    candidate: Candidate
    extensions: tuple[ExtensionRequest, ...] = ()
    preset: str = "fast"


@dataclass(frozen=True)
class EvaluationRequest:
    """A candidate to judge at a preset.

    `artifact`: what a builder made of it (None: it compiles nothing). `extensions`: those that it asked for as it ran,
    and that were not built yet. `passed_look`: whether a builder's look (`Evaluator.look`) found no failure.
    """

    task: Task
    candidate: Candidate
    preset: str
    artifact: Artifact | BuildError | None = None
    extensions: tuple[ExtensionRequest, ...] = ()
    passed_look: bool = False
