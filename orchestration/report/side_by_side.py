"""Several runs side by side: the settings in which they differ, the stages of each with CUDA-L1's statistics, and what
each gains over the first. Read from their directories alone, so no tracking server is asked.

The figures without an interval are also what MLflow has of the runs (`orchestration.step.figures`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from configs.checks import leaves
from configs.schema import RunConfig
from evaluators.records import Estimate
from orchestration.report.assemble import Group, Report, Stage
from orchestration.report.comparison import Comparison, compare, overall, overall_gain
from orchestration.report.fast_p import fast_p_as_json
from orchestration.report.statistics import SpeedSummary, estimate_as_json

UNSAID = ("name", "root")
"""Keys that differ between any two runs and say nothing about how they learn."""


@dataclass(frozen=True)
class Difference:
    """A configuration key with the value that each run has, None for a run without the key."""

    key: str
    values: tuple[str | None, ...]


@dataclass(frozen=True)
class Gain:
    """What a run's last stage has over the first run's, on the tasks that both were assessed on.

    `overall`: how many times as fast all samples are, with those that are not right as 1x. `difference`: of success
    and of the mean speed-ups, as the second minus the first. None without a task in common.
    """

    run: str
    stage: str
    against: str
    tasks: int
    overall: Estimate | None
    difference: Comparison | None


@dataclass(frozen=True)
class GroupOfRuns:
    """One group of tasks in all runs: trained on or held out. `of_runs`: None for a run without such a group."""

    title: str
    of_runs: tuple[Group | None, ...]
    gains: tuple[Gain, ...]


@dataclass(frozen=True)
class SideBySide:
    """A comparison of several runs. `names` are distinct, in the order of `reports`."""

    names: tuple[str, ...]
    reports: tuple[Report, ...]
    differences: tuple[Difference, ...]
    groups: tuple[GroupOfRuns, ...]


def side_by_side(reports: Sequence[Report]) -> SideBySide:
    """Compares runs, each with the first. Raises ValueError for fewer than two."""
    if len(reports) < 2:
        raise ValueError(f"a comparison needs at least two runs, got {len(reports)}")
    names = distinct_names(reports)
    return SideBySide(
        names,
        tuple(replace(report, name=name) for name, report in zip(names, reports, strict=True)),
        tuple(differences([report.config for report in reports])),
        tuple(_groups(names, reports)),
    )


def distinct_names(reports: Sequence[Report]) -> tuple[str, ...]:
    """The names of the runs, with their places if several have one name, and with numbers if places agree, too."""
    places = [report.place.partition("?")[0].rstrip("/").rsplit("/", 2)[-2:] for report in reports]
    candidates = [
        [report.name for report in reports],
        [place[-1] for place in places],
        ["/".join(place) for place in places],
        [f"{report.name} ({index})" for index, report in enumerate(reports, start=1)],
    ]
    return next(tuple(names) for names in candidates if max(Counter(names).values()) == 1)


def differences(configs: Sequence[RunConfig]) -> Iterator[Difference]:
    """The keys in which the configurations differ, in the order of the schema, without `UNSAID`."""
    flat = [{key: _shown(value) for key, value, _ in leaves(config)} for config in configs]
    for key in dict.fromkeys(key for of_run in flat for key in of_run):
        values = tuple(of_run.get(key) for of_run in flat)
        if key not in UNSAID and len(set(values)) > 1:
            yield Difference(key, values)


def _shown(value: Any) -> str:
    """A value as `key=value` on the command line takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return "null" if value is None else str(value) or '""'


def _groups(names: Sequence[str], reports: Sequence[Report]) -> Iterator[GroupOfRuns]:
    """The tasks trained on, and those held out if a run holds any out."""
    has_held_out = any(len(report.groups) > 1 for report in reports)
    for index in range(2 if has_held_out else 1):
        groups = tuple(report.groups[index] if index < len(report.groups) else None for report in reports)
        title = ("Training tasks", "Held-out tasks")[index] if has_held_out else ""
        yield GroupOfRuns(title, groups, tuple(_gains(names, groups)))


def _gains(names: Sequence[str], groups: Sequence[Group | None]) -> Iterator[Gain]:
    first = groups[0].stages[-1] if groups[0] and groups[0].stages else None
    for name, group in zip(names[1:], groups[1:], strict=True):
        last = group.stages[-1] if group and group.stages else None
        if first is None or last is None:
            continue
        shared = {row.task_id for row in first.rows} & {row.task_id for row in last.rows}
        one, other = ([row for row in stage.rows if row.task_id in shared] for stage in (first, last))
        against = f"{names[0]}, {first.label}"
        yield Gain(
            name,
            last.label,
            against,
            len(shared),
            overall_gain(one, other) if shared else None,
            compare(one, other) if shared else None,
        )


def as_json(compared: SideBySide) -> dict[str, Any]:
    """The comparison as plain data. An estimate is `{"value", "low", "high", "n"}`; a figure that does not exist is
    None."""
    return {
        "runs": [
            {"name": name, "place": report.place, "status": report.status, "seed": report.config.seed}
            for name, report in zip(compared.names, compared.reports, strict=True)
        ],
        "differences": {each.key: list(each.values) for each in compared.differences},
        "groups": [
            {
                "title": group.title or "Tasks",
                "runs": {
                    name: _group_as_json(of_run) if of_run else None
                    for name, of_run in zip(compared.names, group.of_runs, strict=True)
                },
                "gains": [_gain_as_json(gain) for gain in group.gains],
            }
            for group in compared.groups
        ],
    }


def report_as_json(report: Report) -> dict[str, Any]:
    """The stages of one run as plain data, as those of `as_json`."""
    return {
        "name": report.name,
        "place": report.place,
        "status": report.status,
        "seed": report.config.seed,
        "groups": [{"title": group.title or "Tasks", **_group_as_json(group)} for group in report.groups],
    }


def _group_as_json(group: Group) -> dict[str, Any]:
    return {
        "stages": {stage.key: stage_as_json(stage) for stage in group.stages},
        "constant_policies": {stage.key: stage_as_json(stage) for stage in group.constants},
    }


def stage_as_json(stage: Stage) -> dict[str, Any]:
    """The figures of a stage that CUDA-L1's tables have, under the names that MLflow has them by, and KernelBench's
    `fast_p` by baseline, level and p."""
    s = stage.summary
    return {
        "tasks": s.tasks,
        "rollouts": s.samples,
        "success_rate": estimate_as_json(s.success),
        "faster_rate": estimate_as_json(s.faster),
        "improved_rate": estimate_as_json(s.improved),
        "speedup_eager": _speeds(s.over_eager),
        "speedup_best": _speeds(s.over_best),
        "overall": estimate_as_json(overall(stage.rows)),
        "fast_p": fast_p_as_json(stage.rows),
    }


def _speeds(speeds: SpeedSummary) -> Mapping[str, Any]:
    estimates = {"mean": speeds.mean, "p75": speeds.upper, "p50": speeds.median, "p25": speeds.lower}
    return {"max": speeds.most, **{name: estimate_as_json(estimate) for name, estimate in estimates.items()}}


def _gain_as_json(gain: Gain) -> dict[str, Any]:
    compared = gain.difference or Comparison(None, None, None)
    return {
        "run": gain.run,
        "stage": gain.stage,
        "against": gain.against,
        "tasks": gain.tasks,
        "overall": estimate_as_json(gain.overall),
        "success_rate": estimate_as_json(compared.success),
        "mean_over_eager": estimate_as_json(compared.mean_over_eager),
        "mean_over_best": estimate_as_json(compared.mean_over_best),
    }
