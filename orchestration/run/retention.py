"""Which checkpoints stay beside the committed one: the newest, and those of the best policies that were assessed.

A policy is as good as its assessment says: the share of samples that are right and faster than eager (`faster_rate`),
then the share that is right (`success_rate`); on held-out tasks if the run has any. Of equal ones the later is better.
A mean speed-up would be that of the right samples alone, and one program can make it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestration.run.state import RunState

SCORES = "scores"
"""The key of `RunState.extra` that lists what was assessed: stage, checkpoint, buffer and score."""

_FIGURES = ("faster_rate", "success_rate")


@dataclass(frozen=True)
class Retention:
    """How many checkpoints stay, with their buffers: `last`, the newest besides the committed one, and `best`."""

    last: int = 1
    best: int = 1


def scored(state: RunState, stage: str, metrics: Mapping[str, float]) -> list[dict[str, Any]]:
    """The state's list of scores, with that of a stage whose policy is the committed checkpoint's. A stage without a
    checkpoint, or without figures, has none."""
    scores = [dict(row) for row in state.extra.get(SCORES, ()) if row["checkpoint"] != state.checkpoint]
    prefix = "held_out/" if f"held_out/{_FIGURES[0]}" in metrics else ""
    score = [metrics[f"{prefix}{name}"] for name in _FIGURES if f"{prefix}{name}" in metrics]
    if state.checkpoint and len(score) == len(_FIGURES):
        row = {"stage": stage, "checkpoint": state.checkpoint, "buffer": state.buffer, "score": score}
        return [*scores, row]
    return [dict(row) for row in state.extra.get(SCORES, ())]


def best(state: RunState, count: int, present: Collection[str]) -> list[Mapping[str, Any]]:
    """The scores of the best `count` among the checkpoints that are `present`, the best first."""
    rows = [row for row in enumerate(state.extra.get(SCORES, ())) if row[1]["checkpoint"] in present]
    rows.sort(key=lambda row: (row[1]["score"], row[0]), reverse=True)
    return [row for _, row in rows[:count]]


def outdated(paths: Sequence[str], last: int, committed: str | None, besides: Collection[str]) -> list[str]:
    """Of paths ordered from old to new, those to remove: not `committed`, not among the newest `last` of the others,
    and not in `besides`."""
    others = [path for path in paths if path != committed]
    newest = others[-last:] if last else []
    return [path for path in others if path not in newest and path not in besides]
