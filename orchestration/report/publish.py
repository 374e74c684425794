"""A run as a page of results: Markdown with tables, plots, the configuration, and the rows that all of it comes from.

Never publishes a task's text, a teacher's program, or a response to a task that does not ship with Warpsmith: those
belong to others.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evaluators.records import VERDICT_SCHEMA, Estimate
from evaluators.stored.verdicts import REUSED_FROM
from evaluators.tasks import load_tasks
from orchestration.report import format as fmt
from orchestration.report import plots
from orchestration.report.assemble import ASSESSMENT, Group, Report
from orchestration.report.html import found_by_kind, light_colours
from orchestration.report.statistics import StageSummary, compare
from orchestration.run.directory import RunDirectory

FONT = "system-ui, sans-serif"
SAMPLE_COLUMNS = [
    "task_id", "group", "response", "policy_version", "finish_reason", "candidate_digest", "outcome", "reward",
    "advantage", "copy_of", "fastest_shown",
]  # fmt: skip
_ABOUT = ("gpu", "processor", "torch", "cuda", "driver", "preset", "containment")

_TELLING = ("sft", "self_supervised", "contrastive_rl", "assessment", "learner", "rollout", "schedule")

Row = Sequence[str]


def publish(report: Report, run: RunDirectory, folder: Path) -> Path:
    """Writes `README.md` and what it links to into a folder, in place of what stood there under these names; returns
    the page's path. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.svg"):
        stale.unlink()
    drawn = {name: svg for name, svg in _plots(report).items() if svg}
    for name, svg in drawn.items():
        (folder / f"{name}.svg").write_text(_standalone(svg), encoding="utf-8")
    (folder / "config.yaml").write_text(report.config_text, encoding="utf-8")
    (folder / "steps.csv").write_text(_steps(report), encoding="utf-8")
    # Without messages, which quote programs.
    verdicts = run.verdicts.read(columns=[name for name in VERDICT_SCHEMA.names if name != "message"])
    metrics = run.metrics.read()
    for name, table in (("samples", _samples(run)), ("verdicts", verdicts), ("metrics", metrics)):
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
    page = folder / "README.md"
    state = run.read_state()
    changed = state.extra.get("changed", ()) if state else ()
    page.write_text(_page(report, list(drawn), _about(verdicts), metrics, changed, _taken_over(verdicts)), "utf-8")
    return page


def _page(
    report: Report,
    drawn: Sequence[str],
    about: Mapping[str, str],
    metrics: pa.Table,
    changed: Sequence[Mapping[str, Any]],
    taken_over: Sequence[str],
) -> str:
    parts = [f"# {report.name}", *_setting(report, about, metrics), *taken_over, *_changes(changed)]
    if not report.stages:
        return "\n\n".join([*parts, "No stage has been assessed yet."]) + "\n"
    for group in report.groups:
        parts += [f"## {group.title or 'Stages'}", _stage_table([stage.summary for stage in group.stages])]
        if gain := _gain(group):
            parts.append(gain)
    parts += [
        "Ranges are 95 % confidence intervals. *Correct* are tasks with a correct sample; speed-ups are over the "
        "correct samples. Of all samples, *copies* are correct and the reference again, *faster* and *improved* ones "
        "correct and more than 1.01x as fast as eager and as the best baseline.",
        "## Over the steps",
        *(f"![{name}]({name}.svg)" for name in drawn),
        "The same figures, a line a step: [steps.csv](steps.csv).",
        "## What the guard found",
        *_guard(report),
        "## Tasks",
        *(part for group in report.groups for part in _tasks(group)),
        *_marked(report),
        *_files(report),
    ]
    return "\n\n".join(parts) + "\n"


def _setting(report: Report, about: Mapping[str, str], metrics: pa.Table) -> list[str]:
    config = report.config
    seconds = _seconds(metrics)
    spent = ", ".join(f"{name} {value / 60:.1f}" for name, value in seconds.items())
    known = "; ".join(f"{name} {value}" for name, value in about.items())
    return [
        f"`{config.policy.model}`, {', '.join(config.schedule.phases)}, seed {config.seed}: {report.status}. "
        f"Stages: {report.measurement}.",
        *([f"Judged with: {known}."] if known else []),
        *([f"Minutes, without starts of the actors and what kills cost: {spent}."] if spent else []),
        _fenced(
            "sh",
            f"warpsmith run config.yaml name={report.name}  # the same command again resumes",
            f"warpsmith report {config.root}/{report.name} --publish .",
        ),
    ]


def _changes(changed: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was configured otherwise before the run was resumed, of the keys that say how it learns and is measured."""
    lines = [
        f"- `{one['key']}`: {one['before']} to step {one['step']} of {one['phase'] or 'the run'}, then {one['after']}"
        for one in changed
        if one["key"].split(".")[0] in _TELLING
    ]
    return ["Changed when the run was resumed:", "\n".join(lines)] if lines else []


def _seconds(metrics: pa.Table) -> dict[str, float]:
    """Seconds that the steps of each phase and the assessments took, as the run measured them."""
    found: dict[str, float] = {}
    for row in metrics.to_pylist():
        is_assessment = row["phase"].startswith(ASSESSMENT)
        if row["name"] == ("pipeline_seconds" if is_assessment else "step_seconds"):
            name = "assessments" if is_assessment else row["phase"]
            found[name] = found.get(name, 0.0) + row["value"]
    return found


def _stage_table(stages: Sequence[StageSummary]) -> str:
    head = ["stage", "tasks", "samples", "success", "correct", "copies", "faster", "improved"]
    head += [f"{name} vs {over}" for over in ("eager", "best") for name in ("mean", "median", "geo-mean")]
    rows = []
    for stage in stages:
        speeds = [
            _speed(one)
            for side in (stage.over_eager, stage.over_best)
            for one in (side.mean, side.median, side.geometric_mean)
        ]
        correct = f"{stage.correct}/{stage.tasks}"
        counts = [str(stage.tasks), str(stage.samples), _share(stage.success), correct]
        shares = [_share(one) for one in (stage.copies, stage.faster, stage.improved)]
        rows.append([stage.stage, *counts, *shares, *speeds])
    return _table(head, rows)


def _gain(group: Group) -> str:
    """What the last stage has over the first, in a sentence."""
    if len(group.stages) < 2:
        return ""
    first, last = group.stages[0], group.stages[-1]
    found = compare(first.rows, last.rows)
    said = []
    if found.success:
        points = (100 * value for value in (found.success.value, found.success.low, found.success.high))
        said.append("success {:+.1f} points ({:+.1f} to {:+.1f})".format(*points))
    for name, one in (("eager", found.mean_over_eager), ("the best baseline", found.mean_over_best)):
        if one:
            said.append(f"mean speed-up over {name} {one.value:+.2f} ({one.low:+.2f} to {one.high:+.2f})")
    return f"{last.label} against {first.label}: {'; '.join(said)}." if said else ""


def _guard(report: Report) -> list[str]:
    found = found_by_kind(report)
    if not found:
        return ["It found fault with no sample."]
    stages = [f"after {stage.label}" for stage in report.stages]
    stages += [f"after {stage.label}, held out" for stage in report.held_out]
    head = ["found", *(label for _, label in report.phases), *stages]
    rows = [[kind, *map(str, counts)] for kind, counts in found]
    return ["Rollouts of the training phases, and samples of the stages, by kind of finding.", _table(head, rows)]


def _tasks(group: Group) -> list[str]:
    """Per task and stage: correct of all samples, and the best speed-up over eager."""
    by_stage = [{task.task_id: task for task in stage.tasks} for stage in group.stages]
    names = sorted({name for tasks in by_stage for name in tasks})
    rows = []
    for name in names:
        tasks = [tasks.get(name) for tasks in by_stage]
        cells = [f"{one.correct}/{one.samples} {fmt.speed(one.best)}" if one else fmt.NOTHING for one in tasks]
        rows.append([name, *cells])
    title = [f"### {group.title}"] if group.title else []
    table = _table(["task", *(stage.label for stage in group.stages)], rows)
    return [*title, "Correct of all samples, and the best speed-up over eager.", table]


def _marked(report: Report) -> list[str]:
    if not report.marks:
        return []
    done = "in none of these figures" if report.config.tasks.marked == "keep" else "left out of the run"
    names = ", ".join(f"{name} ({' '.join(mark.kinds)})" for name, mark in sorted(report.marks.items()))
    return [f"Tasks that cannot tell a good program from a cheat are {done}: {names}."]


def _files(report: Report) -> list[str]:
    return [
        "## Files",
        "- [config.yaml](config.yaml): the resolved configuration\n"
        "- [samples.parquet](samples.parquet): a row a response, of training and of the stages (`phase`, `step`); its "
        "text where the task ships with Warpsmith\n"
        "- [verdicts.parquet](verdicts.parquet): a row a verdict; a sample's has its `candidate_digest`\n"
        "- [metrics.parquet](metrics.parquet): a row a metric and step",
    ]


def _samples(run: RunDirectory) -> pa.Table:
    """The rollouts without prompts and tokens; the text of responses to the bundled tasks alone."""
    table = run.samples.read(columns=[*SAMPLE_COLUMNS, "response_ids"])
    lengths = pc.list_value_length(table["response_ids"])
    ours = pc.is_in(table["task_id"], value_set=pa.array([task.id for task in load_tasks("bundled")], pa.string()))
    texts = pc.if_else(ours, table["response"], pa.scalar(None, pa.string()))
    place = table.column_names.index("response")
    table = table.set_column(place, "response", texts).drop_columns(["response_ids"])
    return table.append_column("response_tokens", lengths)


def _about(verdicts: pa.Table) -> dict[str, str]:
    """What all verdicts say that they were measured with; where they differ, each."""
    seen: dict[str, list[str]] = {name: [] for name in _ABOUT}
    for row in verdicts["evaluator"].to_pylist():
        facts = dict(row)
        for name, values in seen.items():
            if facts.get(name) and facts[name] not in values:
                values.append(facts[name])
    return {name: " or ".join(values) for name, values in seen.items() if values}


def _taken_over(verdicts: pa.Table) -> list[str]:
    """How many programs were not judged by this run, and by which instead."""
    facts = [dict(row) for row in verdicts["evaluator"].to_pylist()]
    programs = dict(zip(verdicts["candidate"].to_pylist(), facts, strict=True))
    found = Counter(about[REUSED_FROM] for about in programs.values() if about.get(REUSED_FROM))
    said = " and ".join(f"{count} from {name}" for name, count in found.items())
    return [f"Verdicts taken over, of {len(programs)} programs: {said} (`evaluator.verdicts_of`)."] if said else []


def _plots(report: Report) -> dict[str, str]:
    drawn = {"progress": plots.progress, "learning": plots.learning, "doubted": plots.doubted}
    names = ("speedups", "speedups_held_out")
    distributions = {name: plots.distribution(group) for name, group in zip(names, report.groups, strict=False)}
    return {**{name: plot(report) for name, plot in drawn.items()}, **distributions}


def _standalone(svg: str) -> str:
    """A plot of a page as a file of its own: with the page's colours in it, and on the ground of its cards."""
    colours = light_colours()
    for variable, colour in colours.items():
        svg = svg.replace(f"var({variable})", colour)
    svg = svg.replace("var(--font)", FONT)
    return svg.replace("<svg", f'<svg style="background: {colours["--card"]}"', 1)


def _steps(report: Report) -> str:
    """A line a training step; empty where a step has no such figure."""
    sink = io.StringIO()
    names = ["phase", "step", "success", "mean_speedup", "reward", "kl", "doubted", "copies"]
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(names)
    for point in report.steps:
        values = [getattr(point, name) for name in names]
        writer.writerow(f"{value:.6g}" if isinstance(value, float) else value for value in values)
    return sink.getvalue()


def _table(head: Row, rows: Iterable[Row]) -> str:
    # Text stands left, figures right.
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _fenced(language: str, *lines: str) -> str:
    return "\n".join([f"```{language}", *lines, "```"])


def _speed(estimate: Estimate | None) -> str:
    bounds = fmt.speed_interval(estimate)
    return f"{fmt.speed(fmt.value_of(estimate))} ({bounds})" if bounds else fmt.NOTHING


def _share(estimate: Estimate | None) -> str:
    bounds = fmt.share_interval(estimate)
    return f"{fmt.share(fmt.value_of(estimate))} ({bounds})" if bounds else fmt.NOTHING
