"""Checks what a configuration says of several architectures, a part of `configs.checks`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from configs.archs import counted_archs
from configs.schema import RunConfig

ACCELERATOR = re.compile(r"[A-Z][A-Za-z0-9]*(-[A-Za-z0-9]+)*")
"""Ray's names of accelerators."""


def architecture_violations(config: RunConfig) -> Iterator[tuple[tuple[str, ...], str]]:
    """The faults of `evaluation` and of the accelerators in `placement`: keys concerned, and a sentence."""
    first, further = config.evaluator.arch, config.evaluation
    for arch in further.archs:
        key = f"evaluation.archs.{arch}"
        if arch != "cpu" and not ACCELERATOR.fullmatch(arch):
            yield (key,), f"{key} must be named cpu, or like an accelerator as Ray has it (H200, A100)"
        if arch == first:
            yield (key, "evaluator.arch"), f"{key} is evaluator.arch already: leave it out"
    if further.reward != "first" and not counted_archs(config):
        yield (
            ("evaluation.reward",),
            f"evaluation.reward={further.reward} is over evaluator.arch and the evaluation.archs with share=1: give "
            f"one of them share=1, or set evaluation.reward=first",
        )
    if further.reward != "first" and config.reward.worth == "beat_shown":
        yield (
            ("evaluation.reward", "reward.worth"),
            f"reward.worth=beat_shown is over what a prompt shows, whose speed-ups are of evaluator.arch alone: set "
            f"evaluation.reward=first, got {further.reward}",
        )
    yield from _accelerators(config)


def _accelerators(config: RunConfig) -> Iterator[tuple[tuple[str, ...], str]]:
    placement = config.placement
    for name in ("learner", "engines"):
        kind = getattr(placement, name)
        if kind and not ACCELERATOR.fullmatch(kind):
            yield (
                (f"placement.{name}",),
                f"placement.{name} must be empty or an accelerator's name as Ray has it (H200, A100), got {kind!r}",
            )
    if placement.share != "none" and placement.learner != placement.engines:
        yield (
            ("placement.learner", "placement.engines", "placement.share"),
            f"placement.learner and placement.engines must be the same while they share GPUs (placement.share="
            f"{placement.share}), got {placement.learner!r} and {placement.engines!r}",
        )
    if placement.share == "all" and placement.learner not in ("", config.evaluator.arch):
        yield (
            ("placement.learner", "evaluator.arch", "placement.share"),
            f"placement.learner must be empty or evaluator.arch ({config.evaluator.arch}) while all roles share GPUs "
            f"(placement.share=all), got {placement.learner!r}",
        )
