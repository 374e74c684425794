"""The three phases of CUDA-L1, each behind the same interface, and the schedule that strings them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration.phases.base import Phase
from orchestration.phases.contrastive_rl import ContrastiveRl
from orchestration.phases.self_supervised import SelfSupervised
from orchestration.phases.sft import Sft

if TYPE_CHECKING:
    from orchestration.session import Session

_PHASES: dict[str, type[Phase]] = {
    "sft": Sft,
    "self_supervised": SelfSupervised,
    "contrastive_rl": ContrastiveRl,
}


def schedule(session: Session) -> list[Phase]:
    """The run's phases in order: the configured list, repeated for the configured number of cycles."""
    config = session.config.schedule
    return [_PHASES[name](session, cycle) for cycle in range(1, config.cycles + 1) for name in config.phases]


__all__ = ["ContrastiveRl", "Phase", "SelfSupervised", "Sft", "schedule"]
