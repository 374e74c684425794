"""What a step asks, and what it brings."""

from __future__ import annotations

from dataclasses import dataclass, field

from evaluators.records import Candidate, Verdict
from learners.records import Rollout


@dataclass(frozen=True)
class Prompt:
    """One prompt on a task; its responses form the group of that name. `reference` is the program to be rewritten,
    `shown` the digests of the exemplars, `fastest` the speed-up of the fastest of them, or the reference's, which is
    1."""

    task_id: str
    group: str
    text: str
    ids: tuple[int, ...]
    reference: str = ""
    shown: frozenset[str] = frozenset()
    fastest: float = 1.0


@dataclass
class StepResult:
    """What a step brought: rollouts (no reward yet), the candidates in them and their verdicts, by digest."""

    rollouts: list[Rollout] = field(default_factory=list)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
