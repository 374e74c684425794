"""What is seen of a run at a moment, as records: what `orchestration.report.watching` reads, and terminals show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestration.report.expected import Remaining
from orchestration.run.pulse import EXIT_CODES, Pulse

_Figures = Mapping[str, float]


@dataclass(frozen=True)
class PhaseLine:
    """A training phase, or an assessment, so far. `steps`: the most that it may take. Figures are those of the latest
    step, None if it does not have them. `seconds`: a step's length."""

    key: str
    label: str
    done: int
    steps: int
    seconds: float | None
    success: float | None
    faster: float | None
    mean_speedup: float | None
    held_out_success: float | None


@dataclass(frozen=True)
class Best:
    """The best program of a task: its speed-ups over eager (None if not measured) and over the best baseline."""

    task: str
    arch: str
    over_eager: float | None
    over_best: float


@dataclass(frozen=True)
class View:
    """What is seen of a run. `ended`: how, a key of `EXIT_CODES`, empty while it goes on; `message`: why it failed.

    `phase`, `step`: what is under way, the step counted from 1, or 0 if that is unknown. `step_of`: phase and step of
    `latest`, the last figures that a training step wrote. `busy`: by role, the share of that step in which it worked.
    `outcomes`: of the samples of `outcomes_of`, the last phase with any, over all its steps. `trends`: by figure, its
    value in every training step that sampled. `caught`: samples by kind of the guard's findings. `pulse`: None if there
    is no fresh one. `judged_a_minute`: verdicts, now or in the last step. `still`: seconds since anything moved.
    """

    name: str
    place: str
    policy: str
    arch: str
    activity: str
    ended: str
    message: str
    phase: str
    step: int
    steps: int
    lines: tuple[PhaseLine, ...]
    step_of: tuple[str, int] | None
    latest: _Figures
    busy: _Figures
    outcomes: Mapping[str, float]
    outcomes_of: str
    trends: Mapping[str, tuple[float | None, ...]]
    best: tuple[Best, ...]
    caught: Mapping[str, int]
    pulse: Pulse | None
    judged_a_minute: float | None
    since_commit: float | None
    still: float
    remaining: Remaining
    set_aside: int
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """What the run's command ended with, as far as is known; 0 while it goes on."""
        return EXIT_CODES[self.ended] if self.ended else 0
