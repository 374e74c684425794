"""The three phases of CUDA-L1 and three that learn nothing, each behind the same interface, and the schedule that
strings them together."""

from __future__ import annotations

from configs.schema import ScheduleConfig
from orchestration.phases.base import Phase
from orchestration.phases.collect import Collect
from orchestration.phases.context import PhaseContext
from orchestration.phases.contrastive_rl import ContrastiveRl
from orchestration.phases.evolve import Evolve
from orchestration.phases.self_supervised import SelfSupervised
from orchestration.phases.sft import Sft
from orchestration.phases.vanilla import Vanilla

_PHASES: dict[str, type[Phase]] = {
    "collect": Collect,
    "sft": Sft,
    "self_supervised": SelfSupervised,
    "contrastive_rl": ContrastiveRl,
    "vanilla": Vanilla,
    "evolve": Evolve,
}


def schedule(config: ScheduleConfig, context: PhaseContext) -> list[Phase]:
    """The run's phases in order: the configured list, repeated for the configured number of cycles."""
    return [_PHASES[name](context, cycle) for cycle in range(1, config.cycles + 1) for name in config.phases]


__all__ = [
    "Collect",
    "ContrastiveRl",
    "Evolve",
    "Phase",
    "PhaseContext",
    "SelfSupervised",
    "Sft",
    "Vanilla",
    "schedule",
]
