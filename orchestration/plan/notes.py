"""What a plan takes for granted, and what it leaves out, in sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from configs.schema import RunConfig
from orchestration.plan.earlier import EarlierRun, Pace
from orchestration.plan.sizes import Sizes


def assumptions(
    config: RunConfig,
    runs: Sequence[EarlierRun],
    pace: Pace | None,
    training_type: str,
    evaluators: Mapping[str, int],
) -> Iterator[str]:
    """What the figures rest on beside what was measured."""
    names = ", ".join(run.name for run in runs)
    if runs:
        yield f"the run's candidates take as long as those of {names}, whatever its tasks are"
    if not any(run.share is not None for run in runs):
        yield "each response is a candidate for an evaluator"
    if pace and pace.model != config.policy.model:
        yield f"{config.policy.model} generates and learns as fast as {pace.model}, and its responses are as long"
    if pace and config.evaluator.arch != "cpu" and pace.arch != training_type:
        yield f"engines and learner are as fast on {training_type} as on {pace.arch}"
    if pace:
        yield "engines and learner ranks are as fast as there, however many there are"
    if config.evaluator.arch != "cpu":
        yield f"engines and learner are on {training_type}"
    yield "all nodes are rented from the run's beginning to its end, and no phase ends before its last step"
    if len(evaluators) > 1:
        yield (
            "each task is judged on one of the types, since speed-ups on different types are not comparable; a run "
            "judges all tasks on evaluator.arch"
        )
    if config.contrastive_rl.repair_turns or config.contrastive_rl.draw == "replace":
        yield "no step has further prompts (contrastive_rl.repair_turns, contrastive_rl.draw)"
    if config.assessment.preset != config.evaluator.preset:
        yield f"assessments, which are at preset {config.assessment.preset}, are judged as fast as all else"


def gaps(
    config: RunConfig,
    runs: Sequence[EarlierRun],
    pace: Pace | None,
    sizes: Sizes,
    left_out: Collection[str],
    *,
    priced: bool,
) -> Iterator[str]:
    """What the figures do not contain, with what would add it."""
    if not pace:
        yield (
            "generation, learning and the push of weights, which no earlier run has measured (--like RUN): steps take "
            "longer, and cost more"
        )
    if not runs:
        yield "how far candidates differ in size: each takes the mean, and none is the last of its step (--like RUN)"
    for name in sorted(left_out):
        lacking = sizes.lacking.get(name)
        yield (
            f"{lacking} (--like RUN, --rates FILE)"
            if lacking
            else f"a price of {name}, which is left out (--prices FILE)"
        )
    if not priced:
        yield "prices of GPUs (--prices FILE)"
    if config.evaluation.archs:
        yield f"waits for verdicts on {', '.join(config.evaluation.archs)} (evaluation.archs), whose GPUs are counted"
    yield "the head, nodes without GPUs for builders, storage, and the minutes in which nodes and actors start"
    if "sft" in config.schedule.phases:
        yield "the hours of sft, which depend on its teachers"
