"""What the phases of a run work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from configs.schema import RunConfig
from evaluators.records import Task
from orchestration.run.answers import Answers
from orchestration.step.archive import Archive
from orchestration.step.endpoint_engines import EndpointEngines
from orchestration.step.pipeline import Pipeline
from orchestration.step.prompts import PromptWriter


@dataclass
class PhaseContext:
    """One run as its phases see it.

    `tasks` are those that the run trains on, `held_out` the others. `learner` drives the learner's ranks together.
    `memory_of` gives what a phase of this run has committed so far, by the phase's key; an empty mapping for a phase
    that has not begun. `answers`: those of teachers' endpoints. `endpoint`: the one that answers in place of engines,
    None without one. Without a phase that learns, `learner` is None.
    """

    config: RunConfig
    tasks: Sequence[Task]
    prompts: PromptWriter
    pipeline: Pipeline
    archive: Archive
    learner: Any
    memory_of: Callable[[str], Mapping[str, Any]]
    answers: Answers
    held_out: Sequence[Task] = ()
    endpoint: EndpointEngines | None = None
