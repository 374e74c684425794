"""Where a run stands, and where it goes on when its configuration has changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from configs.checks import leaves
from configs.load import ConfigError, changed_keys, may_change
from configs.schema import RunConfig

CONSTANT = "constant/"
"""Prefix of the phase key of a constant policy's programs, which no phase proposed."""

# The keys that make a phase longer.
_LENGTHS = {
    "collect": (),
    "sft": ("sft.epochs",),
    "self_supervised": ("self_supervised.max_rounds",),
    "contrastive_rl": ("contrastive_rl.steps", "contrastive_rl.minutes"),
    "vanilla": ("vanilla.rounds",),
    "evolve": ("evolve.rounds", "evolve.budget.evaluations", "evolve.budget.tokens", "evolve.budget.money"),
}


@dataclass(frozen=True)
class RunState:
    """Where a run stands. A resume does everything after this point again.

    `step` counts the finished steps of `phase`. `checkpoint`, `buffer` and `ahead` are paths relative to the run
    directory, as `Checkpoints.publish` and `TableSnapshots.write` return them. `ahead` holds the responses of later
    steps that older policy versions have sampled (`contrastive_rl.max_staleness`). `tracking` and `extra` hold plain
    JSON: MLflow's run ids, and what phases keep between steps (running statistics).
    """

    cycle: int = 1
    phase: str = ""
    step: int = 0
    policy_version: int = 0
    checkpoint: str | None = None
    buffer: str | None = None
    ahead: str | None = None
    tracking: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    finished: bool = False


def phase_key(cycle: int, name: str) -> str:
    """The name of a phase in the run directory and in MLflow: `1-sft`."""
    return f"{cycle}-{name}"


def split_phase_key(key: str) -> tuple[int, str]:
    """Cycle and phase of a `phase_key`."""
    cycle, _, name = key.partition("-")
    return int(cycle), name


def refuse_fixed_changes(place: str, before: RunConfig, now: RunConfig) -> None:
    """Raises ConfigError if a key differs that a resume must not change. `place`: of the run, for the message."""
    fixed = [key for key in changed_keys(before, now) if not may_change(key)]
    if fixed:
        raise ConfigError(
            f"{place}: the run was started with another {fixed[0]}; choose another name=... or remove the folder to "
            f"start anew"
        )


def extend_schedule(state: RunState, before: RunConfig, now: RunConfig) -> RunState:
    """The state of a run whose schedule has grown: it goes on in its last phase, or in the next cycle."""
    old, new = ({key: value for key, value, _ in leaves(config)} for config in (before, now))
    lengths = _LENGTHS.get(state.phase, ())
    is_longer = any((new[key] or math.inf) > (old[key] or math.inf) for key in lengths)  # 0 minutes are no limit
    has_more_cycles = now.schedule.cycles > before.schedule.cycles
    if is_longer:
        reopened = phase_key(state.cycle, state.phase)
        still = {
            name: [key for key in state.extra.get(name, ()) if key != reopened] for name in ("completed", "assessed")
        }
        state = replace(state, extra={**state.extra, **still})
    return to_go_on(state) if is_longer or has_more_cycles else state


def to_go_on(state: RunState) -> RunState:
    """The state of a run to which more is added. Its constant policies are judged again: later lessons change them."""
    assessed = [stage for stage in state.extra.get("assessed", ()) if not stage.startswith(CONSTANT)]
    return replace(state, finished=False, extra={**state.extra, "assessed": assessed})


def record_changes(state: RunState, before: RunConfig, now: RunConfig) -> RunState:
    """The state with a list of the keys that were changed from here on: `config.yaml` holds the latest values alone."""
    old, new = ({key: value for key, value, _ in leaves(config)} for config in (before, now))
    phase = phase_key(state.cycle, state.phase) if state.phase else ""
    changes = [
        {
            "phase": phase,
            "step": state.step,
            "key": key,
            "before": str(old.get(key, "")),
            "after": str(new.get(key, "")),
        }
        for key in changed_keys(before, now)
    ]
    recorded = list(state.extra.get("changed", ()))
    fresh = [change for change in changes if change not in recorded]
    return replace(state, extra={**state.extra, "changed": [*recorded, *fresh]}) if fresh else state


def record_code(state: RunState, version: str) -> RunState:
    """The state with a list of the versions of the code (`configs.code_version`), each from its first step on."""
    recorded = list(state.extra.get("code", ()))
    if not version or (recorded and recorded[-1]["version"] == version):
        return state
    phase = phase_key(state.cycle, state.phase) if state.phase else ""
    fresh = {"version": version, "phase": phase, "step": state.step}
    return replace(state, extra={**state.extra, "code": [*recorded, fresh]})
