"""A run that grows step by step while somebody watches it, with the pulse that its process would write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from configs.schema import RunConfig
from orchestration.run.directory import RunDirectory
from orchestration.run.pulse import Pulse, RolePulse, write_pulse
from orchestration.run.state import RunState
from tests.orchestration.report.full_run import BASELINES, HELD_OUT, TRAINED, FullRun

STEPS = 8
ROLES = (RolePulse("engines", 3, 2, 1, 1, 0.5), RolePulse("evaluators", 7, 2, 2, 2, 0.75, lost=1))
ELSEWHERE = "another-machine"


class GrowingRun:
    """A run in a folder. `train` is a step of contrastive RL, `beat` what its process says of itself at a time."""

    def __init__(self, root: Path, name: str = "growing") -> None:
        self.config = RunConfig(name=name, root=str(root))
        self.config.evaluator.baselines = BASELINES
        self.config.contrastive_rl.steps = STEPS
        self.config.schedule.phases = ["contrastive_rl"]
        self.full = FullRun(RunDirectory(root, name), self.config)
        self.run, self.done = self.full.run, 0
        self.run.write_config(self.config)
        self.run.write_held_out([HELD_OUT])
        self.pulse = Pulse(0.0, 0.0, 5.0, 77, ELSEWHERE, roles=ROLES)

    def assess(self, stage: str = "base", speed: float = 1.0) -> None:
        self.full.assess(stage, {TRAINED[0]: [speed, None], HELD_OUT: [None, speed]})
        self._commit(stage=stage)

    def train(self, speeds: Sequence[float | None] = (1.5, None, 1.0, None)) -> None:
        """A step with these speed-ups, None for a wrong program, above 50 for a cheat."""
        of_tasks: Mapping[str, Sequence[float | None]] = {TRAINED[0]: speeds, TRAINED[1]: [2.0 + self.done, None]}
        self.full.train("1-contrastive_rl", self.done, of_tasks)
        self.done += 1
        self._commit()

    def finish(self) -> None:
        self._commit(finished=True)

    def beat(self, at: float, **over: object) -> None:
        """The pulse at a time, in seconds since 1970."""
        named = {"phase": "1-contrastive_rl", "step": self.done, **over}
        self.pulse = msgspec.structs.replace(self.pulse, time=at, **named)
        write_pulse(self.run.storage, self.pulse)

    def _commit(self, *, stage: str = "", finished: bool = False) -> None:
        before = self.run.read_state() or RunState()
        assessed = [*before.extra.get("assessed", ()), *([stage] if stage else [])]
        phase = "contrastive_rl" if self.done else ""
        self.run.write_state(
            replace(before, phase=phase, step=self.done, extra={"assessed": assessed}, finished=finished)
        )
