"""Reads a run directory into a `Report`: the one place that knows how samples, verdicts and metrics belong together.

Reads only; a report can be made of a finished, a running or a copied run alike.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from configs.load import dump_config
from configs.schema import PHASES, RunConfig
from evaluators.audit.marks import Mark
from evaluators.records import HINT, Outcome
from orchestration.report.statistics import AssessmentRow, StageSummary, TaskSummary, per_task, summarise
from orchestration.run.directory import RunDirectory
from orchestration.run.kernels import Kernel
from orchestration.run.state import RunState

ASSESSMENT = "assess/"
"""Phase keys of assessments: `assess/base`, `assess/1-sft`; training phases are `1-sft`, ..."""

KL_NAME = re.compile(r"(^|[/_.])kl($|[/_.])")


@dataclass(frozen=True)
class Stage:
    """One assessment of the policy: before training (`base`), or after a phase. Every figure is of the tasks that can
    tell a good program from a cheat; `marked` are the others."""

    key: str
    label: str
    rows: tuple[AssessmentRow, ...]
    summary: StageSummary
    tasks: tuple[TaskSummary, ...]
    outcomes: Mapping[str, int]
    found: Mapping[str, int]
    speedups: tuple[float, ...]
    marked: tuple[TaskSummary, ...] = ()


@dataclass(frozen=True)
class Group:
    """Tasks whose figures stand together, in every stage: those trained on, and those held out. `title` is empty where
    the run holds none out."""

    title: str
    stages: tuple[Stage, ...]


@dataclass(frozen=True)
class StepPoint:
    """The rollouts of one training step, without those for marked tasks; None where a step has no such figure.
    `doubted`: the share of them in which the guard found a cheat or the signs of one; `copies`: the share that is right
    and a program that its prompt shows, the reference or an exemplar."""

    phase: str
    step: int
    success: float | None
    mean_speedup: float | None
    reward: float | None
    kl: float | None
    doubted: float | None = None
    copies: float | None = None


@dataclass(frozen=True)
class Report:
    """All that is shown of a run. `stages` are of the tasks that it trains on, `held_out` the same stages of those that
    it never does, empty where there are none. `phases` are the labels of the training phases, in order; `found` counts
    the rollouts of each that the guard found fault with, by kind of finding. `marks` are those of the run's tasks that
    cannot tell a good program from a cheat, by id: left out of the run, or kept and left out of every figure but their
    own."""

    name: str
    place: str
    config: RunConfig
    config_text: str
    state: RunState | None
    stages: tuple[Stage, ...]
    phases: tuple[tuple[str, str], ...]
    steps: tuple[StepPoint, ...]
    found: Mapping[str, Mapping[str, int]]
    kernels: tuple[Kernel, ...]
    marks: Mapping[str, Mark] = field(default_factory=dict)
    held_out: tuple[Stage, ...] = ()

    @property
    def groups(self) -> tuple[Group, ...]:
        """The stages by group of tasks."""
        if not self.held_out:
            return (Group("", self.stages),)
        return Group("Training tasks", self.stages), Group("Held-out tasks", self.held_out)

    @property
    def status(self) -> str:
        if self.state is None:
            return "not started"
        return "finished" if self.state.finished else f"in {self.state.phase or 'setup'}, step {self.state.step}"

    @property
    def measurement(self) -> str:
        """How the stages were measured, in a sentence."""
        assessment, evaluator = self.config.assessment, self.config.evaluator
        return (
            f"{assessment.samples} fresh samples a task, temperature {assessment.temperature:g}, preset "
            f"{assessment.preset}, on {evaluator.arch}; baselines: {', '.join(evaluator.baselines)}"
        )


def build_report(run: RunDirectory) -> Report:
    """The report of a run; raises RunDirectoryError when the folder holds none."""
    config = run.read_config()
    columns = ["task_id", "candidate_digest", "outcome", "reward", "copy_of"]
    samples = run.samples.read(columns=columns).to_pylist()
    verdicts, marks = _verdicts(run, config), run.read_marks()
    rows: dict[str, list[AssessmentRow]] = defaultdict(list)
    by_step: dict[tuple[str, int], list[tuple[AssessmentRow, float | None]]] = defaultdict(list)
    for sample in samples:
        row = _row(sample, verdicts)
        if sample["phase"].startswith(ASSESSMENT):
            rows[sample["phase"].removeprefix(ASSESSMENT)].append(row)
        elif row.task_id not in marks:
            by_step[sample["phase"], sample["step"]].append((row, sample["reward"]))
    held_out = set(run.read_held_out())
    keys = sorted(rows, key=phase_order)
    metrics = run.metrics.read().to_pylist()
    trained = {phase for phase, _ in by_step} | {
        row["phase"] for row in metrics if not row["phase"].startswith(ASSESSMENT)
    }
    phases = sorted((phase for phase in trained if phase_order(phase)[0] < _UNKNOWN), key=phase_order)
    numbered = config.schedule.cycles > 1 or any(_cycle(key) > 1 for key in [*keys, *phases])
    return Report(
        name=config.name,
        place=str(run),
        config=config,
        config_text=dump_config(config),
        state=run.read_state(),
        stages=tuple(
            _stage(key, _label(key, numbered), [row for row in rows[key] if row.task_id not in held_out], marks)
            for key in keys
        ),
        phases=tuple((phase, _label(phase, numbered)) for phase in phases),
        steps=tuple(_steps(by_step, metrics)),
        found={phase: _found_in(by_step, phase) for phase in phases},
        kernels=tuple(run.kernels.read()),
        marks=marks,
        held_out=tuple(
            _stage(key, _label(key, numbered), [row for row in rows[key] if row.task_id in held_out], marks)
            for key in keys
        )
        if held_out
        else (),
    )


_Verdicts = dict[tuple[str | None, str], tuple[str, dict[str, float], tuple[str, ...]]]


def _verdicts(run: RunDirectory, config: RunConfig) -> _Verdicts:
    """Outcome, speed-ups and deciding findings of every candidate by (phase, digest), and by (None, digest) for use in
    other phases: a program that was proposed before is not evaluated again."""
    found: _Verdicts = {}
    for row in run.verdicts.read(columns=["candidate", "arch", "outcome", "speedups", "guard"]).to_pylist():
        if row["arch"] == config.evaluator.arch:
            speedups = {
                name: estimate["value"]
                for name, estimate in dict(row["speedups"]).items()
                if name in config.evaluator.baselines
            }
            kinds = tuple(dict.fromkeys(one["kind"] for one in row["guard"] if one["severity"] != HINT))
            found[row["phase"], row["candidate"]] = found[None, row["candidate"]] = (row["outcome"], speedups, kinds)
    return found


def _row(sample: Mapping[str, Any], verdicts: _Verdicts) -> AssessmentRow:
    digest = sample["candidate_digest"]
    known = verdicts.get((sample["phase"], digest)) or verdicts.get((None, digest))
    if digest is None or known is None:
        return AssessmentRow(sample["task_id"], sample["outcome"] or (Outcome.INFRA if digest else "no_code"))
    return AssessmentRow(sample["task_id"], *known, sample["copy_of"])


def _stage(key: str, label: str, every: list[AssessmentRow], marks: Mapping[str, Mark]) -> Stage:
    rows = [row for row in every if row.task_id not in marks]
    return Stage(
        key=key,
        label=label,
        rows=tuple(rows),
        summary=summarise(rows, label),
        tasks=tuple(per_task(rows)),
        outcomes=Counter(row.outcome for row in rows),
        found=_found(rows),
        speedups=tuple(speed for row in rows if (speed := row.over_eager) is not None),
        marked=tuple(per_task(row for row in every if row.task_id in marks)),
    )


def _found(rows: Iterable[AssessmentRow]) -> Counter[str]:
    """Samples by kind of finding."""
    return Counter(kind for row in rows for kind in row.found)


def _found_in(by_step: Mapping[tuple[str, int], list[tuple[AssessmentRow, float | None]]], phase: str) -> Counter[str]:
    return _found(row for (one, _), pairs in by_step.items() if one == phase for row, _ in pairs)


def _steps(
    by_step: Mapping[tuple[str, int], list[tuple[AssessmentRow, float | None]]], metrics: Iterable[Mapping[str, Any]]
) -> list[StepPoint]:
    """One point for every training step that sampled; a step that only fits (SFT) has none."""
    kl = {(row["phase"], row["step"]): row["value"] for row in metrics if KL_NAME.search(row["name"])}
    points = []
    for (phase, step), pairs in sorted(by_step.items(), key=lambda item: (phase_order(item[0][0]), item[0][1])):
        points.append(
            StepPoint(
                phase,
                step,
                success=_mean([float(row.is_correct) for row, _ in pairs]),
                mean_speedup=_mean([speed for row, _ in pairs if (speed := row.over_eager) is not None]),
                reward=_mean([reward for _, reward in pairs if reward is not None]),
                kl=kl.get((phase, step)),
                doubted=_mean([float(bool(row.found)) for row, _ in pairs]),
                copies=_copies([row for row, _ in pairs]),
            )
        )
    return points


def _copies(rows: Sequence[AssessmentRow]) -> float | None:
    """None where a right program was not looked at."""
    if any(row.is_correct and row.copy_of is None for row in rows):
        return None
    return _mean([float(row.is_correct and bool(row.copy_of)) for row in rows])


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


_UNKNOWN = 1_000_000


def _cycle(key: str) -> int:
    number, dash, _ = key.partition("-")
    return int(number) if dash and number.isdecimal() else 0


def phase_order(key: str) -> tuple[int, int, str]:
    """`base`, then by cycle and phase, then anything else by name."""
    phase = key.partition("-")[2]
    if key == "base":
        return 0, 0, key
    if _cycle(key) and phase in PHASES:
        return _cycle(key), PHASES.index(phase), key
    return _UNKNOWN, 0, key


def _label(key: str, numbered: bool) -> str:
    """`1-sft` is `sft`, or `sft (1)` in a run of several cycles."""
    if not _cycle(key):
        return key
    phase = key.partition("-")[2]
    return f"{phase} ({_cycle(key)})" if numbered else phase
