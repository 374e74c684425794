"""The rollouts of a step with what became of their programs, as they stand in a run's directory."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from evaluators.records import Outcome, Verdict
from orchestration.run.directory import RunDirectory

NO_CODE = "no_code"
"""The outcome of a response without a program."""
_COLUMNS = (
    "task_id", "group", "prompt", "response", "response_ids", "policy_version", "finish_reason", "candidate_digest",
    "outcome", "reward", "advantage", "copy_of",
)  # fmt: skip


@dataclass(frozen=True)
class JudgedRollout:
    """One rollout. `number`: its place in the step. `tokens`: of the response. `program`, `digest`: what was found in
    it, if anything. `outcome`: of the verdict, or `NO_CODE`. `verdict`: None if this step has none on the program."""

    number: int
    task: str
    prompt: str
    response: str
    tokens: int
    policy_version: int
    finish_reason: str
    copy_of: str
    outcome: str
    digest: str = ""
    program: str = ""
    reward: float | None = None
    advantage: float | None = None
    verdict: Verdict | None = None


def read_judged(run: RunDirectory, phase: str, step: int, arch: str) -> list[JudgedRollout]:
    """The rollouts of a step, with verdicts on this architecture. Raises FileNotFoundError for a step without rows."""
    samples = run.samples.read_step(phase, step, _COLUMNS).to_pylist()
    sources = {row["digest"]: row["source"] for row in run.candidates.read_step(phase, step).to_pylist()}
    rows = run.verdicts.read_step(phase, step).to_pylist()
    verdicts = {row["candidate"]: Verdict.from_row(row) for row in rows if row["arch"] == arch}
    return [
        JudgedRollout(
            number,
            row["task_id"],
            row["prompt"] or "",
            row["response"] or "",
            len(row["response_ids"] or ()),
            row["policy_version"],
            row["finish_reason"],
            row["copy_of"] or "",
            row["outcome"] or (Outcome.INFRA if row["candidate_digest"] else NO_CODE),
            row["candidate_digest"] or "",
            sources.get(row["candidate_digest"], ""),
            row["reward"],
            row["advantage"],
            verdicts.get(row["candidate_digest"]),
        )
        for number, row in enumerate(samples)
    ]


def drawn(rollouts: Sequence[JudgedRollout], number: int, seed: str) -> list[JudgedRollout]:
    """The rollout with the highest reward, and others at random, the same for the same seed; in their own order."""
    best = max(rollouts, key=lambda rollout: rollout.reward or 0.0, default=None)
    if best is None or number < 1:
        return []
    others = [rollout for rollout in rollouts if rollout is not best]
    chosen = [best, *random.Random(seed).sample(others, min(number - 1, len(others)))]
    return sorted(chosen, key=lambda rollout: rollout.number)
