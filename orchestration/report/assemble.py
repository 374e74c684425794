"""Reads a run directory into a `Report`. Only this module knows how samples, verdicts and metrics belong together.

It writes nothing. So a report can be made of a finished run, of a running one and of a copy.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from configs.load import dump_config
from configs.schema import PHASES, RunConfig
from evaluators.audit.marks import Mark
from evaluators.records import HINT, Outcome
from orchestration.report.statistics import AssessmentRow, StageSummary, TaskSummary, summarise, summarise_tasks
from orchestration.run.directory import RunDirectory
from orchestration.run.kernels import Kernel
from orchestration.run.state import RunState

ASSESSMENT = "assess/"
"""Prefix of an assessment's phase key: `assess/base`, `assess/1-sft`. Training phases have none: `1-sft`, ..."""

NO_CODE = "no_code"
"""The outcome of a sample whose response contains no program."""

_KL_NAME = re.compile(r"(^|[/_.])kl($|[/_.])")


@dataclass(frozen=True)
class Stage:
    """One assessment of the policy: before training (`base`), or after a phase.

    Figures cover only the tasks that can tell a good program from a cheat. `marked` summarises the other tasks.
    `findings` counts the samples by kind of the guard's findings.
    """

    key: str
    label: str
    rows: tuple[AssessmentRow, ...]
    summary: StageSummary
    tasks: tuple[TaskSummary, ...]
    outcomes: Mapping[str, int]
    findings: Mapping[str, int]
    speedups: tuple[float, ...]
    marked: tuple[TaskSummary, ...]


@dataclass(frozen=True)
class Group:
    """The stages of one group of tasks: those trained on, or those held out. `title` is empty if none are held out."""

    title: str
    stages: tuple[Stage, ...]


@dataclass(frozen=True)
class StepPoint:
    """The rollouts of one training step, without those for marked tasks. A figure that the step does not have is None.

    `doubted`: the share of rollouts in which the guard found a cheat or signs of one. `copies`: the share that is
    correct and copies a program that its prompt shows (the reference or an exemplar).
    """

    phase: str
    step: int
    success: float | None
    mean_speedup: float | None
    reward: float | None
    kl: float | None
    doubted: float | None
    copies: float | None


@dataclass(frozen=True)
class Report:
    """Everything that is shown of a run.

    `stages`: of the tasks that the run trains on. `held_out`: the same stages of the held-out tasks, empty if there are
    none. `phases`: key and label of each training phase, in order. `findings`: for each phase, the number of its
    rollouts by kind of the guard's findings. `marks`: by id, those of the run's tasks that cannot tell a good program
    from a cheat. The run left them out, or kept them in no figure but their own.
    """

    name: str
    place: str
    config: RunConfig
    config_text: str
    state: RunState | None
    stages: tuple[Stage, ...]
    phases: tuple[tuple[str, str], ...]
    steps: tuple[StepPoint, ...]
    findings: Mapping[str, Mapping[str, int]]
    kernels: tuple[Kernel, ...]
    marks: Mapping[str, Mark]
    held_out: tuple[Stage, ...]

    @property
    def groups(self) -> tuple[Group, ...]:
        """The stages by group of tasks."""
        if not self.held_out:
            return (Group("", self.stages),)
        return Group("Training tasks", self.stages), Group("Held-out tasks", self.held_out)

    @property
    def status(self) -> str:
        """Where the run stands, in a few words."""
        if self.state is None:
            return "not started"
        return "finished" if self.state.finished else f"in {self.state.phase or 'setup'}, step {self.state.step}"

    @property
    def measurement(self) -> str:
        """How the stages were measured, as one line."""
        assessment, evaluator = self.config.assessment, self.config.evaluator
        return (
            f"{assessment.samples} fresh samples per task, temperature {assessment.temperature:g}, preset "
            f"{assessment.preset}, on {evaluator.arch}; baselines: {', '.join(evaluator.baselines)}"
        )


def build_report(run: RunDirectory) -> Report:
    """The report of a run. Raises RunDirectoryError if the folder holds none."""
    stored = run.read_stored_config()
    config = stored.config
    columns = ["task_id", "candidate_digest", "outcome", "reward", "copy_of"]
    samples = run.samples.read(columns=columns).to_pylist()
    verdicts, marks = _read_verdicts(run, config), run.read_marks()
    rows: dict[str, list[AssessmentRow]] = defaultdict(list)
    rollouts: _Rollouts = defaultdict(list)
    for sample in samples:
        row = _to_row(sample, verdicts)
        if sample["phase"].startswith(ASSESSMENT):
            rows[sample["phase"].removeprefix(ASSESSMENT)].append(row)
        elif row.task_id not in marks:
            rollouts[sample["phase"], sample["step"]].append((row, sample["reward"]))
    metrics = run.metrics.read().to_pylist()
    phases = _training_phases(rollouts, metrics)
    keys = sorted(rows, key=phase_order)
    is_numbered = config.schedule.cycles > 1 or any(_cycle(key) > 1 for key in [*keys, *phases])
    held_out = set(run.read_held_out())

    def stages(*, of_held_out: bool) -> tuple[Stage, ...]:
        return tuple(
            _build_stage(
                key,
                _label(key, is_numbered),
                [row for row in rows[key] if (row.task_id in held_out) is of_held_out],
                marks,
            )
            for key in keys
        )

    return Report(
        name=config.name,
        place=str(run),
        config=config,
        config_text="".join(f"# {loss}\n" for loss in stored.losses) + dump_config(config),
        state=run.read_state(),
        stages=stages(of_held_out=False),
        phases=tuple((phase, _label(phase, is_numbered)) for phase in phases),
        steps=tuple(_build_steps(rollouts, metrics)),
        findings={
            phase: _count_findings(row for (key, _), pairs in rollouts.items() if key == phase for row, _ in pairs)
            for phase in phases
        },
        kernels=tuple(run.kernels.read()),
        marks=marks,
        held_out=stages(of_held_out=True) if held_out else (),
    )


_Rollouts = dict[tuple[str, int], list[tuple[AssessmentRow, float | None]]]
"""Rollouts with their rewards, by phase and step."""

_Verdicts = dict[tuple[str | None, str], tuple[str, dict[str, float], tuple[str, ...]]]
"""Outcome, speed-ups and kinds of deciding findings, by phase and candidate."""


def _read_verdicts(run: RunDirectory, config: RunConfig) -> _Verdicts:
    """The verdict of every candidate by (phase, digest), and by (None, digest) for other phases: a program is not
    evaluated again if an earlier phase proposed it."""
    verdicts: _Verdicts = {}
    for row in run.verdicts.read(columns=["candidate", "arch", "outcome", "speedups", "guard"]).to_pylist():
        if row["arch"] == config.evaluator.arch:
            speedups = {
                name: estimate["value"]
                for name, estimate in dict(row["speedups"]).items()
                if name in config.evaluator.baselines
            }
            kinds = tuple(dict.fromkeys(finding["kind"] for finding in row["guard"] if finding["severity"] != HINT))
            verdict = (row["outcome"], speedups, kinds)
            verdicts[row["phase"], row["candidate"]] = verdicts[None, row["candidate"]] = verdict
    return verdicts


def _to_row(sample: Mapping[str, Any], verdicts: _Verdicts) -> AssessmentRow:
    """The sample with its verdict: that of its own phase, else that of another phase."""
    digest = sample["candidate_digest"]
    verdict = verdicts.get((sample["phase"], digest)) or verdicts.get((None, digest))
    if digest is None or verdict is None:
        return AssessmentRow(sample["task_id"], sample["outcome"] or (Outcome.INFRA if digest else NO_CODE))
    return AssessmentRow(sample["task_id"], *verdict, sample["copy_of"])


def _training_phases(rollouts: _Rollouts, metrics: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys of the training phases that have rollouts or metrics, in order."""
    keys = {phase for phase, _ in rollouts} | {
        row["phase"] for row in metrics if not row["phase"].startswith(ASSESSMENT)
    }
    return sorted((key for key in keys if phase_order(key)[0] < _UNKNOWN), key=phase_order)


def _build_stage(key: str, label: str, rows: list[AssessmentRow], marks: Mapping[str, Mark]) -> Stage:
    unmarked = [row for row in rows if row.task_id not in marks]
    return Stage(
        key=key,
        label=label,
        rows=tuple(unmarked),
        summary=summarise(unmarked, label),
        tasks=tuple(summarise_tasks(unmarked)),
        outcomes=Counter(row.outcome for row in unmarked),
        findings=_count_findings(unmarked),
        speedups=tuple(speed for row in unmarked if (speed := row.over_eager) is not None),
        marked=tuple(summarise_tasks(row for row in rows if row.task_id in marks)),
    )


def _count_findings(rows: Iterable[AssessmentRow]) -> Counter[str]:
    """Samples by kind of finding."""
    return Counter(kind for row in rows for kind in row.findings)


def _build_steps(rollouts: _Rollouts, metrics: Iterable[Mapping[str, Any]]) -> list[StepPoint]:
    """One point per training step that sampled. A step that only fits given programs (SFT) has none."""
    kl = {(row["phase"], row["step"]): row["value"] for row in metrics if _KL_NAME.search(row["name"])}
    points = []
    for (phase, step), pairs in sorted(rollouts.items(), key=lambda item: (phase_order(item[0][0]), item[0][1])):
        points.append(
            StepPoint(
                phase,
                step,
                success=_mean([float(row.is_correct) for row, _ in pairs]),
                mean_speedup=_mean([speed for row, _ in pairs if (speed := row.over_eager) is not None]),
                reward=_mean([reward for _, reward in pairs if reward is not None]),
                kl=kl.get((phase, step)),
                doubted=_mean([float(bool(row.findings)) for row, _ in pairs]),
                copies=_share_of_copies([row for row, _ in pairs]),
            )
        )
    return points


def _share_of_copies(rows: Sequence[AssessmentRow]) -> float | None:
    """The share that is correct and a copy; None if a correct sample was not checked for that."""
    if any(row.is_correct and row.copy_of is None for row in rows):
        return None
    return _mean([float(row.is_correct and bool(row.copy_of)) for row in rows])


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


_UNKNOWN = 1_000_000
"""Sorts unknown keys after every cycle."""


def _cycle(key: str) -> int:
    """The cycle of a phase's key, 0 if the key has none."""
    number, dash, _ = key.partition("-")
    return int(number) if dash and number.isdecimal() else 0


def phase_order(key: str) -> tuple[int, int, str]:
    """Sorts keys: `base`, then by cycle and phase, then all others by name."""
    phase = key.partition("-")[2]
    if key == "base":
        return 0, 0, key
    if _cycle(key) and phase in PHASES:
        return _cycle(key), PHASES.index(phase), key
    return _UNKNOWN, 0, key


def _label(key: str, is_numbered: bool) -> str:
    """`1-sft` becomes `sft`, or `sft (1)` in a run of several cycles."""
    if not _cycle(key):
        return key
    phase = key.partition("-")[2]
    return f"{phase} ({_cycle(key)})" if is_numbered else phase
