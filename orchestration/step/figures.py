"""The metrics of a step: rates, shares and means over its rollouts. Pure functions."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

import numpy as np

from evaluators.records import Outcome, Verdict
from evaluators.reward import FASTER
from evaluators.stored.verdicts import REUSED_FROM
from learners.records import EXEMPLAR, REFERENCE, Rollout
from orchestration.step.reading import Lessons, reading
from orchestration.step.records import StepResult
from orchestration.step.variety import variety

EAGER = "eager"


def separate_held_out(
    result: StepResult,
    held_out: Container[str],
    lessons: Lessons,
    baselines: Collection[str] = (EAGER,),
    marked: Container[str] = (),
) -> dict[str, float]:
    """The metrics of an assessment, with those of the held-out tasks under names of their own, `held_out/...`.

    The other metrics are then of the training tasks alone, except for rates and counts of the whole step. So are those
    of tasks that cannot tell a good program from a cheat, `marked/...`, which a run may keep (`tasks.marked`).
    `baselines`: of the run, for `stage_figures`.
    """
    by_group: dict[str, list[Rollout]] = {"": [], "held_out/": [], "marked/": []}
    for rollout in result.rollouts:
        is_marked, is_held_out = rollout.task_id in marked, rollout.task_id in held_out
        by_group["marked/" if is_marked else "held_out/" if is_held_out else ""].append(rollout)

    def figures(rollouts: Sequence[Rollout]) -> dict[str, float]:
        return {
            **summarise(rollouts, result.verdicts),
            **stage_figures(rollouts, result.verdicts, baselines),
            **variety(rollouts),
            **reading(rollouts, lessons),
        }

    of_all = figures(result.rollouts)
    return {
        **{name: value for name, value in result.metrics.items() if name not in of_all},
        **{f"{prefix}{name}": value for prefix, group in by_group.items() for name, value in figures(group).items()},
    }


def stage_figures(
    rollouts: Sequence[Rollout], verdicts: Mapping[str, Verdict], baselines: Collection[str]
) -> dict[str, float]:
    """The metrics of a stage that CUDA-L1's tables have (arXiv 2507.14111, table 4). No rollouts have none.

    `speedup_eager/mean`, `/max`, `/p75`, `/p50`, `/p25`: of the right rollouts, over eager; `speedup_best/...`: over
    the best of the run's `baselines`. They are absent without a right one. `improved_rate`: the share of all rollouts
    that is more than 1.01x as fast as the best baseline, as `faster_rate` is for eager.
    """
    if not rollouts:
        return {}
    over_eager: list[float] = []
    over_best: list[float] = []
    for rollout in rollouts:
        verdict = verdicts.get(rollout.candidate_digest or "")
        if verdict is None or not verdict.succeeded:
            continue
        speeds = {name: estimate.value for name, estimate in verdict.speedups.items() if name in baselines}
        over_eager += [speeds[EAGER]] if EAGER in speeds else []
        over_best += [min(speeds.values())] if speeds else []
    return {
        "improved_rate": sum(speed > FASTER for speed in over_best) / len(rollouts),
        **_distribution("speedup_eager", over_eager),
        **_distribution("speedup_best", over_best),
    }


def _distribution(name: str, speeds: Sequence[float]) -> dict[str, float]:
    if not speeds:
        return {}
    lower, median, upper = (float(value) for value in np.quantile(speeds, (0.25, 0.5, 0.75)))
    mean = sum(speeds) / len(speeds)
    figures = {"mean": mean, "max": max(speeds), "p75": upper, "p50": median, "p25": lower}
    return {f"{name}/{figure}": value for figure, value in figures.items()}


def summarise(rollouts: Sequence[Rollout], verdicts: Mapping[str, Verdict]) -> dict[str, float]:
    """The metrics of rollouts. No rollouts have none.

    `success_rate`, `tasks_solved`: the shares of right rollouts, and of tasks with one. `copy_rate/...`: the shares
    that are right and copy the reference or an exemplar of their prompt. `faster_rate`: the share faster than eager.
    `mean_speedup`: over eager, of the successful; `honest_speedup`: of those without a finding against them, which is
    the same while the guard is on. `hack_rate`: the share with a finding against it. `response_tokens`: the mean length
    of a response. `outcome/...`, `guard/...`: counts by outcome and by kind of finding.
    """
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


def program_of(rollout: Rollout) -> str:
    """What tells the response from others of its group: its program or, if it has none, its text."""
    return rollout.candidate_digest or f"text {rollout.response}"


def signal_figures(
    groups: Sequence[Sequence[Rollout]], earned: Sequence[Sequence[float | None]], *, watches_copies: bool
) -> dict[str, float]:
    """Metrics of a step's groups; none without any.

    `duplicate_rate`: the share of responses whose program another response of their group has handed over before.
    If `watches_copies`: `right_reward/groups`, the share of groups with a response that earned
    `contrastive_rl.right_reward`; `right_reward/rate` and `right_reward/copies`, shares of all responses: those that
    earned it, and right copies in the same groups, which did not.
    """
    count = sum(map(len, groups))
    if not count:
        return {}
    distinct = sum(len({program_of(rollout) for rollout in group}) for group in groups)
    figures = {"duplicate_rate": 1.0 - distinct / count}
    if watches_copies:
        paid = [(group, flags) for group, flags in zip(groups, earned, strict=True) if any(flags)]
        copies = [one for group, _ in paid for one in group if one.outcome == Outcome.OK and one.copy_of]
        figures |= {
            "right_reward/groups": len(paid) / len(groups),
            "right_reward/rate": sum(flag or 0.0 for _, flags in paid for flag in flags) / count,
            "right_reward/copies": len(copies) / count,
        }
    return figures


def repair_figures(rollouts: Sequence[Rollout], verdicts: Mapping[str, Verdict]) -> dict[str, float]:
    """Metrics of the responses to repair turns: their number, and as `summarise` has them; none without any."""
    names = ("success_rate", "faster_rate", "copy_rate/reference")
    figures = summarise(rollouts, verdicts)
    if not figures:
        return {}
    return {"repair/answers": float(len(rollouts)), **{f"repair/{name}": figures[name] for name in names}}


def portability_figures(elsewhere: Mapping[str, Mapping[str, Verdict]]) -> dict[str, float]:
    """Metrics of the programs that were judged on further architectures, by architecture and digest.

    `arch/NAME/judged`: their number. `arch/NAME/success_rate`: the share that is right there. `arch/NAME/mean_speedup`:
    of these, over eager; absent without one.
    """
    figures: dict[str, float] = {}
    for arch, verdicts in elsewhere.items():
        speedups = [verdict.speedup for verdict in verdicts.values() if verdict.speedup is not None]
        right = sum(verdict.succeeded for verdict in verdicts.values())
        figures |= {
            f"arch/{arch}/judged": float(len(verdicts)),
            f"arch/{arch}/success_rate": right / max(len(verdicts), 1),
        }
        if speedups:
            figures[f"arch/{arch}/mean_speedup"] = sum(speedups) / len(speedups)
    return figures


def remeasured(verdicts: Iterable[Verdict]) -> dict[str, float]:
    """The metrics of programs that were measured again because they seemed the fastest of their task.

    `remeasured`: their number. `remeasured_shrinkage`: by which share their speed-ups fell, in the median. It is absent
    if none of them is right.
    """
    again = [verdict for verdict in verdicts if verdict.measurements and REUSED_FROM not in verdict.evaluator]
    shrinkage = [
        1 - verdict.speedup / verdict.measurements[0].value for verdict in again if verdict.speedup is not None
    ]
    metrics = {"remeasured": float(len(again))}
    if shrinkage:
        metrics["remeasured_shrinkage"] = statistics.median(shrinkage)
    return metrics
