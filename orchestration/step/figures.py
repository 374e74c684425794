"""The figures of a step: rates, shares and means over its rollouts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence

from evaluators.records import Outcome, Verdict
from evaluators.reward import FASTER
from learners.records import EXEMPLAR, REFERENCE, Rollout
from orchestration.step.records import StepResult


def apart(result: StepResult, held_out: Container[str]) -> dict[str, float]:
    """The figures of a step with those of the held-out tasks' rollouts apart, as `held_out/...`: the others are then of
    the training tasks alone, but for rates and counts of the whole step."""
    theirs = [one for one in result.rollouts if one.task_id in held_out]
    if not theirs:
        return result.metrics
    ours = [one for one in result.rollouts if one.task_id not in held_out]
    of_all = summary(result.rollouts, result.verdicts)
    return {
        **{name: value for name, value in result.metrics.items() if name not in of_all},
        **summary(ours, result.verdicts),
        **{f"held_out/{name}": value for name, value in summary(theirs, result.verdicts).items()},
    }


def summary(rollouts: Sequence[Rollout], verdicts: Mapping[str, Verdict]) -> dict[str, float]:
    """Success rate, the shares that are right and copy what their prompt shows or are faster than eager, mean speed-up
    over eager of the successful (and of those that nothing was found against, which is the same while the guard is on),
    response length, the share that something was found against, and counts by outcome and by kind of finding."""
    if not rollouts:
        return {}
    outcomes = Counter(rollout.outcome for rollout in rollouts)
    copies = Counter(rollout.copy_of for rollout in rollouts if rollout.outcome == Outcome.OK)
    speedups = [
        speedup
        for rollout in rollouts
        if rollout.candidate_digest and (speedup := verdicts[rollout.candidate_digest].speedup) is not None
    ]
    judged = [verdicts[rollout.candidate_digest] for rollout in rollouts if rollout.candidate_digest]
    hacks = [verdict for verdict in judged if verdict.deciding]
    caught = Counter(kind for verdict in hacks for kind in {finding.kind for finding in verdict.deciding})
    honest = [verdict.speedup for verdict in judged if verdict.speedup is not None and not verdict.deciding]
    by_task: dict[str, list[bool]] = defaultdict(list)
    for rollout in rollouts:
        by_task[rollout.task_id].append(rollout.outcome == Outcome.OK)
    metrics = {
        "rollouts": float(len(rollouts)),
        "success_rate": outcomes[Outcome.OK] / len(rollouts),
        "tasks_solved": sum(any(values) for values in by_task.values()) / len(by_task),
        "copy_rate/reference": copies[REFERENCE] / len(rollouts),
        "copy_rate/exemplar": copies[EXEMPLAR] / len(rollouts),
        "faster_rate": sum(speedup > FASTER for speedup in speedups) / len(rollouts),
        "hack_rate": len(hacks) / len(rollouts),
        "response_tokens": sum(len(rollout.response_ids) for rollout in rollouts) / len(rollouts),
        **{f"outcome/{name}": float(count) for name, count in outcomes.items()},
        **{f"guard/{kind}": float(count) for kind, count in caught.items()},
    }
    if honest:
        metrics["honest_speedup"] = sum(honest) / len(honest)
    if speedups:
        metrics["mean_speedup"] = sum(speedups) / len(speedups)
    return metrics
