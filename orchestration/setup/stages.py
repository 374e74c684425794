"""The stages of a run, as far as its configuration says: how many steps each has, and how many responses a step."""

from __future__ import annotations

from dataclasses import dataclass

from configs.schema import RunConfig
from orchestration.run.state import phase_key
from orchestration.setup.tasks import RunTasks


@dataclass(frozen=True)
class Stage:
    """A phase of a cycle. `responses`: of a step; 0 if it samples none. Repair turns may add as many again."""

    key: str
    phase: str
    steps: int
    responses: int


def phase_stages(config: RunConfig, tasks: int, held_out: int = 0) -> list[Stage]:
    """The phases of all cycles of a run that trains on so many tasks. A phase may end before its last step. Those that
    learn nothing also ask about the tasks that are held out."""
    rounds, rl = config.self_supervised, config.contrastive_rl
    sizes = {
        "collect": (1, 0),
        "sft": (1 + config.sft.epochs, 0),
        "self_supervised": (rounds.max_rounds, rounds.samples * tasks),
        "contrastive_rl": (rl.steps, rl.group_size * min(rl.tasks_per_step, tasks)),
        "vanilla": (config.vanilla.rounds, config.vanilla.samples * (tasks + held_out)),
        "evolve": (config.evolve.rounds, config.evolve.samples * (tasks + held_out)),
    }
    return [
        Stage(phase_key(cycle, name), name, *sizes[name])
        for cycle in range(1, config.schedule.cycles + 1)
        for name in config.schedule.phases
    ]


def assessed_responses(config: RunConfig, tasks: RunTasks) -> int:
    """The responses of an assessment. There is one at the start, and one after each phase."""
    return config.assessment.samples * len(tasks.measured(config.assessment.training_tasks))
