"""What a configuration says of each architecture on which programs are judged. Imports neither torch nor ray."""

from __future__ import annotations

from dataclasses import replace

from configs.schema import ONLY_ON_GPUS, EvaluatorConfig, RunConfig


def evaluator_on(config: RunConfig, arch: str) -> EvaluatorConfig:
    """How programs are judged on an architecture: `evaluator` itself, or what it is on one of `evaluation.archs`."""
    if arch == config.evaluator.arch:
        return config.evaluator
    further, baselines = config.evaluation.archs[arch], config.evaluator.baselines
    if arch == "cpu":
        baselines = [name for name in baselines if name not in ONLY_ON_GPUS]
    return replace(
        config.evaluator,
        arch=arch,
        capability=further.capability,
        workers=further.workers,
        builders=further.builders,
        baselines=baselines,
    )


def counted_archs(config: RunConfig) -> list[str]:
    """The architectures beside `evaluator.arch` on which every program of the policy is judged for its reward."""
    if config.evaluation.reward == "first":
        return []
    return [arch for arch, further in config.evaluation.archs.items() if further.share == 1.0]


def sampled_archs(config: RunConfig) -> dict[str, float]:
    """The other ones of `evaluation.archs`, with the share of the right programs that are judged there."""
    counted = counted_archs(config)
    return {arch: further.share for arch, further in config.evaluation.archs.items() if arch not in counted}
