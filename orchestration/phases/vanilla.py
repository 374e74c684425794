"""One-shot sampling with frozen weights (CUDA-L1 table 5): what `evolve` and every trained policy are compared with."""

from __future__ import annotations

from orchestration.phases.frozen import Frozen
from orchestration.step.records import Prompt


class Vanilla(Frozen):
    """Rounds of one-shot prompts. Nothing flows from one round to the next."""

    name = "vanilla"

    @property
    def steps(self) -> int:
        return self.context.config.vanilla.rounds

    @property
    def samples(self) -> int:
        return self.context.config.vanilla.samples

    def prompts(self, step: int) -> list[Prompt]:
        return [self.context.prompts.one_shot(task.id) for task in self.tasks]
