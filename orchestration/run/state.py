"""Where a run stands, and where it goes on when its configuration has changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from configs.checks import leaves
from configs.load import changed_keys
from configs.schema import RunConfig

_LENGTHS = {
    "sft": ("sft.epochs",),
    "self_supervised": ("self_supervised.max_rounds",),
    "contrastive_rl": ("contrastive_rl.steps", "contrastive_rl.minutes"),
}


@dataclass(frozen=True)
class RunState:
    """Where a run stands: everything after this point is done again when the run is resumed.

    `step` counts the finished steps of `phase`. `checkpoint` and `buffer` are paths relative to the run directory, as
    `publish_checkpoint` and `write_buffer` returned them. `rng`, `tracking` and `extra` hold plain JSON: the states of
    random generators, MLflow's run ids, and what phases keep between steps (running statistics).
    """

    cycle: int = 1
    phase: str = ""
    step: int = 0
    policy_version: int = 0
    checkpoint: str | None = None
    buffer: str | None = None
    rng: Mapping[str, Any] = field(default_factory=dict)
    tracking: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    finished: bool = False


def phase_key(cycle: int, name: str) -> str:
    """How a phase is called in the run directory and in MLflow: `1-sft`."""
    return f"{cycle}-{name}"


def extended(state: RunState, before: RunConfig, now: RunConfig) -> RunState:
    """Where a run goes on whose schedule has grown: in the phase that it stood in last, or in the next cycle."""
    old, new = ({key: value for key, value, _ in leaves(config)} for config in (before, now))
    lengths = _LENGTHS.get(state.phase, ())
    if any((new[one] or math.inf) > (old[one] or math.inf) for one in lengths):  # no minutes are no limit
        key = phase_key(state.cycle, state.phase)
        still = {name: [one for one in state.extra.get(name, ()) if one != key] for name in ("completed", "assessed")}
        state = replace(state, finished=False, extra={**state.extra, **still})
    return replace(state, finished=state.finished and now.schedule.cycles <= before.schedule.cycles)


def noted(state: RunState, before: RunConfig, now: RunConfig) -> RunState:
    """The state, which keeps what is configured otherwise from here on: `config.yaml` has the latest alone."""
    old, new = ({key: value for key, value, _ in leaves(config)} for config in (before, now))
    phase = phase_key(state.cycle, state.phase) if state.phase else ""
    changes = [
        {"phase": phase, "step": state.step, "key": key, "before": str(old[key]), "after": str(new[key])}
        for key in changed_keys(before, now)
    ]
    known = list(state.extra.get("changed", ()))
    new_ones = [one for one in changes if one not in known]
    return replace(state, extra={**state.extra, "changed": [*known, *new_ones]}) if new_ones else state
