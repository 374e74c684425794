"""The prompt of a step, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field

from evaluators.records import Candidate, Verdict
from learners.records import Rollout


@dataclass(frozen=True)
class Prompt:
    """One prompt on a task. Its responses form the group of that name; a step renames a group that it has already.

    `ids`: token ids. `reference`: the program that is to be rewritten. `shown`: the digests of the exemplars, in their
    order. `fastest`: the speed-up of the fastest exemplar, or of the reference, which is 1. `speedups`: of the
    exemplars, as the prompt prints them; None for those that it shows without. `repairs`: the digest of the failing
    program that a repair turn shows, empty in other prompts.
    """

    task_id: str
    group: str
    text: str
    ids: tuple[int, ...]
    reference: str = ""
    shown: tuple[str, ...] = ()
    fastest: float = 1.0
    speedups: tuple[float | None, ...] = ()
    repairs: str = ""


@dataclass
class StepResult:
    """The result of a step: rollouts without rewards, their candidates and verdicts by digest, metrics by name."""

    rollouts: list[Rollout] = field(default_factory=list)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
