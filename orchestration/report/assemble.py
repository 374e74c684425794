"""Reads a run directory into a `Report`. Only this module knows how samples, verdicts and metrics belong together.

It writes nothing. So a report can be made of a finished run, of a running one and of a copy.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from configs.frozen import learns
from configs.load import dump_config
from configs.schema import FROZEN, RunConfig
from evaluators.audit.marks import Mark
from evaluators.records import Estimate
from orchestration.report.caught import NONE_CAUGHT, Catches, catches_of
from orchestration.report.constants import Speedups, constant_rows
from orchestration.report.draws import DrawSummary, summarise_draws
from orchestration.report.effort import ROLES, UTILISATION, PhaseEffort, effort_of
from orchestration.report.format import value_of
from orchestration.report.keys import ASSESSMENT, is_training, label_of, phase_order, split_key
from orchestration.report.lineage import Lineages, Origin
from orchestration.report.observed import Metrics, Reading, Tutoring, Variety, readings_of, tutoring_of, variety_of
from orchestration.report.portability import ArchSummary, portability_of
from orchestration.report.rounds import RoundPoint, rounds_of
from orchestration.report.rows import RunRows
from orchestration.report.statistics import (
    AssessmentRow,
    StageSummary,
    TaskSummary,
    mean_of,
    share,
    summarise,
    summarise_tasks,
)
from orchestration.run.directory import RunDirectory
from orchestration.run.kernels import Kernel
from orchestration.run.state import CONSTANT, RunState
from orchestration.step.constants import NEAREST_LESSONS

_KL_NAME = re.compile(r"(^|[/_.])kl($|[/_.])")


@dataclass(frozen=True)
class Stage:
    """One assessment of the policy: before training (`base`), or after a phase. Or a phase that learns nothing: its own
    samples say what the policy can do. Or a constant policy.

    Figures cover only the tasks that can tell a good program from a cheat. `marked` summarises the other tasks.
    `findings` counts the samples by kind of the guard's findings. `draws`: what several samples of a task are worth.
    `variety`: how much the samples differ; None if the run did not record it.
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
    draws: tuple[DrawSummary, ...]
    variety: Variety | None = None


@dataclass(frozen=True)
class Group:
    """The stages of one group of tasks: those trained on, or those held out. `title` is empty if none are held out.

    `constants`: policies that give one program for each task, whatever is sampled (`orchestration.report.constants`).
    `rounds`: how good the best programs were after each round of phases that learn nothing.
    """

    title: str
    stages: tuple[Stage, ...]
    constants: tuple[Stage, ...] = ()
    rounds: tuple[RoundPoint, ...] = ()


@dataclass(frozen=True)
class StepPoint:
    """The rollouts of one training step, without those for marked tasks. A figure that the step does not have is None.

    `doubted`: the share of rollouts in which the guard found a cheat or signs of one. `copies`: the share that is
    correct and copies a program that its prompt shows (the reference or an exemplar). `estimates`: `success`, `faster`
    (than eager), `mean_speedup`, `reward` and `doubted` with their intervals over the step's tasks.
    """

    phase: str
    step: int
    success: float | None
    mean_speedup: float | None
    reward: float | None
    kl: float | None
    doubted: float | None
    copies: float | None
    estimates: Mapping[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """Everything that is shown of a run.

    `phases`: key and label of each training phase, in order. `findings`: for each phase, the number of its
    rollouts by kind of the guard's findings. `marks`: by id, those of the run's tasks that cannot tell a good program
    from a cheat. The run left them out, or kept them in no figure but their own. `readings`: by the key of a training
    phase, how its answers use the exemplars that they were shown. `groups`: the stages by group of tasks. `tutoring`:
    what endpoints of teachers gave, None without any. `teachers`: what each teacher gave, with the key of the phase.
    `portability`: the best programs on each architecture, empty if
    the run judged on one. `origins`: by digest, where the programs of `kernels` come from. `references`: by task, if
    the prompts are stored. `catches`: what the guard stopped. `effort`: by phase. `busy`: by role, the share of each
    step in which it worked.
    """

    name: str
    place: str
    config: RunConfig
    config_text: str
    state: RunState | None
    groups: tuple[Group, ...]
    phases: tuple[tuple[str, str], ...]
    steps: tuple[StepPoint, ...]
    findings: Mapping[str, Mapping[str, int]]
    kernels: tuple[Kernel, ...]
    marks: Mapping[str, Mark]
    readings: Mapping[str, Reading]
    tutoring: Tutoring | None = None
    teachers: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    portability: tuple[ArchSummary, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)
    references: Mapping[str, str] = field(default_factory=dict)
    catches: Catches = NONE_CAUGHT
    effort: tuple[PhaseEffort, ...] = ()
    busy: Mapping[str, Mapping[tuple[str, int], float]] = field(default_factory=dict)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of the tasks that the run trains on."""
        return self.groups[0].stages

    @property
    def held_out(self) -> tuple[Stage, ...]:
        """The same stages of the held-out tasks, empty if there are none."""
        return self.groups[1].stages if len(self.groups) > 1 else ()

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
        if not learns(self.config):
            baselines = ", ".join(evaluator.baselines)
            return f"The samples of the phases themselves, on {evaluator.arch}; baselines: {baselines}"
        return (
            f"{assessment.samples} fresh samples per task, temperature {assessment.temperature:g}, preset "
            f"{assessment.preset}, on {evaluator.arch}; baselines: {', '.join(evaluator.baselines)}"
        )


def build_report(run: RunDirectory, baselines: Speedups | None = None) -> Report:
    """The report of a run. Raises RunDirectoryError if the folder holds none.

    `baselines`: their speed-ups over eager by task, for tasks on which the run itself did not measure them.
    """
    stored = run.read_stored_config()
    config, known, marks = stored.config, RunRows(run, stored.config), run.read_marks()
    rows, rollouts, by_round = _sort(known, marks)
    metrics = Metrics(run.metrics.read().to_pylist())
    phases = sorted(filter(is_training, {phase for phase, _ in rollouts} | metrics.phases), key=phase_order)
    keys = sorted((key.removeprefix(ASSESSMENT) for key in rows if key.startswith(ASSESSMENT)), key=phase_order)
    is_numbered = config.schedule.cycles > 1 or any(split_key(key)[0] > 1 for key in [*keys, *phases])
    stages = [(key, label_of(key, is_numbered)) for key in keys]
    known_baselines = {**(baselines or {}), **known.baselines}
    groups = []
    for title, of_held_out, tasks in _divide(rows, set(run.read_held_out())):
        known_of = _Known(config, marks, metrics, known_baselines, of_held_out)
        rounds = tuple(_rounds(by_round, tasks, is_numbered))
        groups.append(replace(_build_group(title, stages, tasks, rows, known_of), rounds=rounds))
    kernels, lineages = tuple(run.kernels.read()), Lineages(run, known.samples)
    state = run.read_state()
    extra = state.extra if state is not None else {}
    labels = tuple((phase, label_of(phase, is_numbered)) for phase in phases)
    return Report(
        name=config.name,
        place=str(run),
        config=config,
        config_text="".join(f"# {loss}\n" for loss in stored.losses) + dump_config(config),
        state=state,
        groups=tuple(groups),
        phases=labels,
        steps=tuple(_build_steps(rollouts, metrics)),
        findings={
            phase: _count_findings(row for (key, _), pairs in rollouts.items() if key == phase for row, _ in pairs)
            for phase in phases
        },
        kernels=kernels,
        marks=marks,
        readings=readings_of(metrics, phases),
        tutoring=tutoring_of(metrics, phases),
        teachers=tuple((key, row) for key in phases for row in extra.get(key, {}).get("teachers", ())),
        portability=portability_of(config.evaluator.arch, kernels, known.elsewhere, marks),
        origins=lineages.origins_of(kernel.candidate.digest for kernel in kernels),
        references=lineages.references(kernel.task_id for kernel in kernels),
        catches=catches_of(run, known.judged.values(), marks),
        effort=effort_of(metrics, labels, known.judging),
        busy={role: metrics.shares_of(f"{UTILISATION}{role}", phases) for role in ROLES},
    )


def _sort(known: RunRows, marks: Mapping[str, Mark]) -> tuple[dict[str, list[AssessmentRow]], _Rollouts, _Rounds]:
    """The samples of a run: by the stage that they measure, those of training steps, and those of rounds that learn
    nothing, which also are a stage."""
    rows: dict[str, list[AssessmentRow]] = defaultdict(list)
    rollouts: _Rollouts = defaultdict(list)
    by_round: _Rounds = defaultdict(lambda: defaultdict(list))
    for sample in known.samples:
        row, phase = known.row_of(sample), sample["phase"]
        if phase.startswith((ASSESSMENT, CONSTANT)):
            rows[phase].append(row)
            continue
        is_frozen = split_key(phase)[1] in FROZEN
        if is_frozen:
            rows[f"{ASSESSMENT}{phase}"].append(row)
        if row.task_id not in marks:
            rollouts[phase, sample["step"]].append((row, sample["reward"]))
            if is_frozen:
                by_round[phase][sample["step"]].append(row)
    return rows, rollouts, by_round


def _rounds(by_round: _Rounds, tasks: Sequence[str], is_numbered: bool) -> Iterator[RoundPoint]:
    """A point for each round of the phases that learn nothing, on a group of tasks."""
    for key in sorted(by_round, key=phase_order):
        yield from rounds_of(label_of(key, is_numbered), by_round[key], tasks)


_Rows = Mapping[str, Sequence[AssessmentRow]]
"""Assessed samples, by phase key."""


def _divide(rows: _Rows, held_out: set[str]) -> Iterator[tuple[str, bool, list[str]]]:
    """The groups of tasks: title, whether they are held out, and the ids of the assessed tasks."""
    tasks = {row.task_id for key, of_key in rows.items() if key.startswith(ASSESSMENT) for row in of_key}
    yield "Training tasks" if held_out else "", False, sorted(tasks - held_out)
    if held_out:
        yield "Held-out tasks", True, sorted(tasks & held_out)


@dataclass(frozen=True)
class _Known:
    """What the stages of a group need to know of the run."""

    config: RunConfig
    marks: Mapping[str, Mark]
    metrics: Metrics
    baselines: Speedups
    of_held_out: bool


def _build_group(
    title: str, stages: Sequence[tuple[str, str]], tasks: Sequence[str], rows: _Rows, known: _Known
) -> Group:
    """`stages`: key and label of each. `tasks`: those of the group. `rows`: of all groups."""
    # Metrics of earlier versions are of all tasks, also of marked ones.
    has_marked = bool(known.marks) and known.config.tasks.marked == "keep" and not known.metrics.has("marked/rollouts")
    built, chosen = [], set(tasks)
    for key, label in stages:
        phase = f"{ASSESSMENT}{key}"
        variety = None if has_marked else variety_of(known.metrics, phase, of_held_out=known.of_held_out)
        own = [row for row in rows.get(phase, ()) if row.task_id in chosen]
        built.append(_build_stage(key, label, own, known.marks, variety))
    lessons, baselines = rows.get(NEAREST_LESSONS, ()), known.config.evaluator.baselines
    constants = constant_rows(tasks, known.baselines, lessons, baselines)
    policies = tuple(_build_stage(name, name, own, known.marks) for name, own in constants.items())
    return Group(title, tuple(built), policies)


_Rollouts = dict[tuple[str, int], list[tuple[AssessmentRow, float | None]]]
"""Rollouts with their rewards, by phase and step."""
_Rounds = dict[str, dict[int, list[AssessmentRow]]]
"""Samples by phase and round."""


def _build_stage(
    key: str, label: str, rows: Sequence[AssessmentRow], marks: Mapping[str, Mark], variety: Variety | None = None
) -> Stage:
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
        draws=() if split_key(key)[1] == "evolve" else tuple(summarise_draws(unmarked)),  # later ones know the earlier
        variety=variety,
    )


def _count_findings(rows: Iterable[AssessmentRow]) -> Counter[str]:
    """Samples by kind of finding."""
    return Counter(kind for row in rows for kind in row.findings)


def _build_steps(rollouts: _Rollouts, metrics: Metrics) -> list[StepPoint]:
    """One point per training step that sampled. A step that only fits given programs (SFT) has none."""
    kl = {(row["phase"], row["step"]): row["value"] for row in metrics.rows if _KL_NAME.search(row["name"])}
    points = []
    for (phase, step), pairs in sorted(rollouts.items(), key=lambda item: (phase_order(item[0][0]), item[0][1])):
        rows, rewards = [row for row, _ in pairs], [reward for _, reward in pairs]
        tasks = [row.task_id for row in rows]
        figures = {
            "success": share(rows, lambda row: row.is_correct),
            "faster": share(rows, lambda row: row.is_faster),
            "mean_speedup": mean_of([row.over_eager for row in rows], tasks),
            "reward": mean_of(rewards, tasks),
            "doubted": share(rows, lambda row: bool(row.findings)),
        }
        points.append(
            StepPoint(
                phase,
                step,
                success=value_of(figures["success"]),
                mean_speedup=value_of(figures["mean_speedup"]),
                reward=value_of(figures["reward"]),
                kl=kl.get((phase, step)),
                doubted=value_of(figures["doubted"]),
                copies=_share_of_copies(rows),
                estimates={name: estimate for name, estimate in figures.items() if estimate is not None},
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
