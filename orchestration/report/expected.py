"""How long a run will still take, from what its steps and assessments have taken so far. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from configs.frozen import learns
from configs.schema import RunConfig
from orchestration.report.keys import ASSESSMENT, split_key
from orchestration.run.outside import most_steps
from orchestration.run.state import RunState, phase_key

_RECENT = 10  # steps whose mean length the next ones are taken to have
_Figures = Mapping[tuple[str, int], Mapping[str, float]]


@dataclass(frozen=True)
class Remaining:
    """`phase`: seconds that the phase under way will take at most, None before its second step. `run`: seconds to the
    end of the run, None if it has phases of which nothing is known yet, which `unknown` names."""

    phase: float | None
    run: float | None
    unknown: tuple[str, ...]


def remaining_of(config: RunConfig, state: RunState, figures: _Figures) -> Remaining:
    """What is left of a run with these metrics by phase and step. A phase may end sooner than at its last step.

    A phase that has not begun is taken to last as long as that of an earlier cycle did.
    """
    if state.finished:
        return Remaining(0.0, 0.0, ())
    keys = [phase_key(cycle, name) for cycle in range(1, config.schedule.cycles + 1) for name in config.schedule.phases]
    completed = set(state.extra.get("completed", ()))
    left = [key for key in keys if key not in completed]
    if not left:
        return Remaining(0.0, None, ())
    phase = _left_of(config, left[0], figures)
    later = {key: _length_of_earlier(key, figures) for key in left[1:]}
    unknown = tuple(key for key, seconds in later.items() if seconds is None)
    assessments = [each for (key, _), each in figures.items() if key.startswith(ASSESSMENT)]
    known = [each["pipeline_seconds"] for each in assessments if "pipeline_seconds" in each]
    assessing = sum(known) / len(known) * len(left) if known and learns(config) else 0.0
    if phase is None or unknown:
        return Remaining(phase, None, unknown)
    return Remaining(phase, phase + assessing + sum(seconds or 0.0 for seconds in later.values()), ())


def _left_of(config: RunConfig, key: str, figures: _Figures) -> float | None:
    """Seconds for the steps of a phase that are not done."""
    done = sorted(step for phase, step in figures if phase == key)
    name = split_key(key)[1]
    lengths = [figures[key, step].get("step_seconds", 0.0) for step in done]
    # The first step of SFT judges the teachers' programs, and the others train.
    lengths = lengths[1:] if name == "sft" else lengths
    if not lengths:
        return None
    recent = lengths[-_RECENT:]
    steps = max(most_steps(config).get(name, 0) - (done[-1] + 1), 0)
    seconds = steps * sum(recent) / len(recent)
    if name == "contrastive_rl" and config.contrastive_rl.minutes:
        seconds = min(seconds, max(60.0 * config.contrastive_rl.minutes - sum(lengths), 0.0))
    return seconds


def _length_of_earlier(key: str, figures: _Figures) -> float | None:
    """How long the same phase took in the last cycle that has one."""
    cycle, name = split_key(key)
    for earlier in range(cycle - 1, 0, -1):
        lengths = [
            each.get("step_seconds", 0.0) for (phase, _), each in figures.items() if phase == phase_key(earlier, name)
        ]
        if lengths:
            return sum(lengths)
    return None
