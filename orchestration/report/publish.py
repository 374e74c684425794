"""Publishes a run as a page of results: Markdown with tables and plots, the configuration, and the raw rows.

Never publishes what belongs to others: a task's text, a teacher's program, or a response to a task that does not ship
with Warpsmith.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from configs.code_version import DIRTY, commit_of
from evaluators.records import VERDICT_SCHEMA
from evaluators.stored.verdicts import REUSED_FROM
from evaluators.tasks import load_tasks
from orchestration.report import format as fmt
from orchestration.report import plots
from orchestration.report.assemble import Group, Report
from orchestration.report.comparison import compare, overall_gain
from orchestration.report.html import findings_by_kind, light_colours
from orchestration.report.keys import ASSESSMENT
from orchestration.report.tables import Table as Described
from orchestration.report.tables import further_tables, intervals_note, stage_tables
from orchestration.run.directory import RunDirectory

FONT = "system-ui, sans-serif"
SAMPLE_COLUMNS = [
    "task_id", "group", "response", "policy_version", "finish_reason", "candidate_digest", "outcome", "reward",
    "advantage", "copy_of", "fastest_shown", "shown_speedups", "repairs",
]  # fmt: skip
_ROW_GROUP = 1024
_EVALUATOR_FACTS = ("gpu", "processor", "torch", "cuda", "driver", "preset", "containment")

_SECTIONS = (
    "sft",
    "self_supervised",
    "contrastive_rl",
    "vanilla",
    "evolve",
    "assessment",
    "learner",
    "rollout",
    "schedule",
)
"""Sections of the configuration that say how a run learns and is measured."""

Row = Sequence[str]


def publish(report: Report, run: RunDirectory, folder: Path) -> Path:
    """Writes `README.md` and the files that it links to into a folder, and returns the page's path.

    Replaces files of the same names, and removes old plots. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.svg"):
        stale.unlink()
    drawn = {name: svg for name, svg in _draw_plots(report).items() if svg}
    for name, svg in drawn.items():
        (folder / f"{name}.svg").write_text(_standalone(svg), encoding="utf-8")
    (folder / "config.yaml").write_text(report.config_text, encoding="utf-8")
    (folder / "steps.csv").write_text(_steps_csv(report), encoding="utf-8")
    # Messages are left out: they quote programs.
    verdicts = run.verdicts.read(columns=[name for name in VERDICT_SCHEMA.names if name != "message"])
    metrics = run.metrics.read()
    for name, table in (("samples", _own_samples(run)), ("verdicts", verdicts), ("metrics", metrics)):
        # An evaluator that reuses one of the verdicts reads its row group alone.
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd", row_group_size=_ROW_GROUP)
    (folder / "held_out.json").write_text(json.dumps(run.read_held_out(), indent=1), "utf-8")
    page = folder / "README.md"
    state = run.read_state()
    changed = state.extra.get("changed", ()) if state else ()
    branch = _branch(state.extra.get("branch")) if state else []
    introduction = [
        *_setting(report, _evaluator_facts(verdicts), metrics, state.extra.get("code", ()) if state else ()),
        *branch,
        *_taken_over(verdicts),
        *_changes(changed),
    ]
    page.write_text(_page(report, introduction, list(drawn)), "utf-8")
    return page


def _page(report: Report, introduction: Sequence[str], plot_names: Sequence[str]) -> str:
    parts = [f"# {report.name}", *introduction]
    if not report.stages:
        return "\n\n".join([*parts, "No stage has been assessed yet."]) + "\n"
    parts += stage_sections(report)
    parts += [
        "## Over the steps",
        *(f"![{name}]({name}.svg)" for name in plot_names),
        "The same figures, one line per step: [steps.csv](steps.csv).",
        "## What the guard found",
        *_findings(report),
        "## Tasks",
        *(part for group in report.groups for part in _task_table(group)),
        *_marked_tasks(report),
        *_file_list(),
    ]
    return "\n\n".join(parts) + "\n"


def stage_sections(report: Report) -> list[str]:
    """The parts of a page with the figures of the stages, by group of tasks, and of the answers of training."""
    parts: list[str] = []
    for group in report.groups:
        parts.append(f"## {group.title or 'Stages'}")
        for table in stage_tables(group):
            parts += [f"### {table.title}", _figures(table)]
            if group is report.groups[0]:
                parts.append(table.note)
        if gain := _describe_gain(group):
            parts.append(gain)
        if group is report.groups[0]:
            parts.append(intervals_note(group))
    for table in further_tables(report):
        parts += [f"## {table.title}", _figures(table), table.note]
    return parts


def _setting(
    report: Report, evaluator_facts: Mapping[str, str], metrics: pa.Table, code: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Policy, phases, measurement, minutes, the versions of the `code`, and the commands that repeat the run."""
    config = report.config
    minutes = ", ".join(f"{name} {value / 60:.1f}" for name, value in _seconds_by_phase(metrics).items())
    facts = "; ".join(f"{name} {value}" for name, value in evaluator_facts.items())
    return [
        f"`{config.policy.model}`, {', '.join(config.schedule.phases)}, seed {config.seed}: {report.status}. "
        f"Stages: {report.measurement}.",
        *([f"Judged with: {facts}."] if facts else []),
        *([f"Minutes, without starts of the actors and work lost to kills: {minutes}."] if minutes else []),
        _fenced(
            "sh",
            *_checkouts(code),
            f"warpsmith run config.yaml name={report.name}  # the same command again resumes",
            f"warpsmith report {config.root}/{report.name} --publish .",
        ),
    ]


def _checkouts(code: Sequence[Mapping[str, Any]]) -> list[str]:
    """The commands that bring the versions of a run's code; one that is no commit is a comment."""
    lines = []
    for one in code:
        version, commit = one["version"], commit_of(one["version"])
        remarks = [f"from step {one['step']} of {one['phase']} on"] if one["phase"] else []
        remarks += ["with changes that no commit has"] if version.endswith(DIRTY) else []
        word = f"git checkout {commit[:10]}" if commit else f"# Warpsmith {version}"
        lines.append(f"{word}  # {', '.join(remarks)}" if remarks else word)
    return lines


def _changes(changed: Sequence[Mapping[str, Any]]) -> list[str]:
    """The configuration keys that changed when the run was resumed, in the sections that matter for its figures."""
    lines = [
        f"- `{change['key']}`: {change['before']} to step {change['step']} of {change['phase'] or 'the run'}, "
        f"then {change['after']}"
        for change in changed
        if change["key"].split(".")[0] in _SECTIONS
    ]
    return ["Changed when the run was resumed:", "\n".join(lines)] if lines else []


def _branch(origin: Mapping[str, Any] | None) -> list[str]:
    """Where a branch begins, and what it has of the other run."""
    if not origin:
        return []
    changes = [f"- `{change['key']}`: {change['before']} there, {change['after']} here" for change in origin["changed"]]
    return [
        f"A branch of the run {origin['run']} ({origin['id']}) after {origin['after']}, policy version "
        f"{origin['policy_version']}. All up to there is that run's: policy, moments, buffer, lessons, verdicts, "
        f"metrics and stages. What differs from there on:",
        "\n".join(changes) or "- nothing",
    ]


def _seconds_by_phase(metrics: pa.Table) -> dict[str, float]:
    """The seconds that the steps of each phase and the assessments took, as the run measured them."""
    seconds: dict[str, float] = {}
    for row in metrics.to_pylist():
        is_assessment = row["phase"].startswith(ASSESSMENT)
        if row["name"] == ("pipeline_seconds" if is_assessment else "step_seconds"):
            name = "assessments" if is_assessment else row["phase"]
            seconds[name] = seconds.get(name, 0.0) + row["value"]
    return seconds


def _figures(table: Described) -> str:
    """A table as Markdown, with intervals in brackets behind their figures."""
    return _table(
        [table.first, *(column.replace("\n", " ") for column in table.columns)],
        [
            [name, *(f"{cell.value} ({cell.below})" if cell.below else cell.value for cell in cells)]
            for name, cells in (*table.rows, *table.others)
        ],
    )


def _describe_gain(group: Group) -> str:
    """How the last stage compares with the first, in sentences. Empty for a single stage."""
    if len(group.stages) < 2:
        return ""
    first, last = group.stages[0], group.stages[-1]
    comparison = compare(first.rows, last.rows)
    gains = []
    if success := comparison.success:
        points = (100 * value for value in (success.value, success.low, success.high))
        gains.append("success {:+.1f} points ({:+.1f} to {:+.1f})".format(*points))
    for name, speed in (("eager", comparison.mean_over_eager), ("the best baseline", comparison.mean_over_best)):
        if speed:
            gains.append(f"mean speed-up over {name} {speed.value:+.2f} ({speed.low:+.2f} to {speed.high:+.2f})")
    over_tasks, over_samples = (overall_gain(first.rows, last.rows, over) for over in ("tasks", "samples"))
    if over_tasks and over_samples:
        gains.append(
            f"all samples {fmt.speed(over_tasks.value)} as fast ({fmt.speed_interval(over_tasks)}; over samples of "
            f"these very tasks {fmt.speed_interval(over_samples)})"
        )
    return f"{last.label} against {first.label}: {'; '.join(gains)}." if gains else ""


def _findings(report: Report) -> list[str]:
    findings = findings_by_kind(report)
    if not findings:
        return ["Nothing."]
    stages = [f"after {stage.label}" for stage in report.stages]
    stages += [f"after {stage.label}, held out" for stage in report.held_out]
    head = ["kind", *(label for _, label in report.phases), *stages]
    rows = [[kind, *map(str, counts)] for kind, counts in findings]
    return ["Rollouts of the training phases and samples of the stages, by kind of finding.", _table(head, rows)]


def _task_table(group: Group) -> list[str]:
    """Per task and stage: correct samples of all samples, and the best speed-up over eager."""
    by_stage = [{task.task_id: task for task in stage.tasks} for stage in group.stages]
    names = sorted({name for tasks in by_stage for name in tasks})
    rows = []
    for name in names:
        tasks = [tasks.get(name) for tasks in by_stage]
        cells = [f"{task.correct}/{task.samples} {fmt.speed(task.best)}" if task else fmt.NOTHING for task in tasks]
        rows.append([name, *cells])
    title = [f"### {group.title}"] if group.title else []
    table = _table(["task", *(stage.label for stage in group.stages)], rows)
    return [*title, "Correct samples of all samples, and the best speed-up over eager.", table]


def _marked_tasks(report: Report) -> list[str]:
    """A sentence that names the marked tasks."""
    if not report.marks:
        return []
    done = "in none of these figures" if report.config.tasks.marked == "keep" else "left out of the run"
    names = ", ".join(f"{name} ({' '.join(mark.kinds)})" for name, mark in sorted(report.marks.items()))
    return [f"Tasks that cannot tell a good program from a cheat are {done}: {names}."]


def _file_list() -> list[str]:
    return [
        "## Files",
        "- [config.yaml](config.yaml): the resolved configuration\n"
        "- [held_out.json](held_out.json): the tasks held out from training\n"
        "- [samples.parquet](samples.parquet): one row per response, of training and of the stages (`phase`, `step`), "
        "with the text of responses to tasks that ship with Warpsmith\n"
        "- [verdicts.parquet](verdicts.parquet): one row per verdict; `candidate` is a sample's `candidate_digest`\n"
        "- [metrics.parquet](metrics.parquet): one row per metric and step",
    ]


def _own_samples(run: RunDirectory) -> pa.Table:
    """The rollouts without prompts and tokens, with the text of responses only for bundled tasks."""
    table = run.samples.read(columns=[*SAMPLE_COLUMNS, "response_ids"])
    lengths = pc.list_value_length(table["response_ids"])
    is_bundled = pc.is_in(
        table["task_id"], value_set=pa.array([task.id for task in load_tasks("bundled")], pa.string())
    )
    texts = pc.if_else(is_bundled, table["response"], pa.scalar(None, pa.string()))
    place = table.column_names.index("response")
    table = table.set_column(place, "response", texts).drop_columns(["response_ids"])
    return table.append_column("response_tokens", lengths)


def _evaluator_facts(verdicts: pa.Table) -> dict[str, str]:
    """Hardware and software that the verdicts were measured with. If verdicts differ, every value is named."""
    seen: dict[str, list[str]] = {name: [] for name in _EVALUATOR_FACTS}
    for row in verdicts["evaluator"].to_pylist():
        facts = dict(row)
        for name, values in seen.items():
            if facts.get(name) and facts[name] not in values:
                values.append(facts[name])
    return {name: " or ".join(values) for name, values in seen.items() if values}


def _taken_over(verdicts: pa.Table) -> list[str]:
    """A sentence that says how many programs were judged by other runs, and by which. Empty if there are none."""
    facts = [dict(row) for row in verdicts["evaluator"].to_pylist()]
    programs = dict(zip(verdicts["candidate"].to_pylist(), facts, strict=True))
    counts = Counter(about[REUSED_FROM] for about in programs.values() if about.get(REUSED_FROM))
    runs = " and ".join(f"{count} from {name}" for name, count in counts.items())
    return [f"Verdicts taken over, of {len(programs)} programs: {runs} (`evaluator.verdicts_of`)."] if runs else []


def _draw_plots(report: Report) -> dict[str, str]:
    """The report's plots as SVG, by the name of their file. A plot without data is empty."""
    names = ("speedups", "speedups_held_out")
    distributions = {name: plots.draw_distribution(group) for name, group in zip(names, report.groups, strict=False)}
    return {
        "progress": plots.draw_progress(report),
        "learning": plots.draw_learning(report),
        "doubted": plots.draw_doubted(report),
        **distributions,
    }


def _standalone(svg: str) -> str:
    """A page's plot as a file of its own: with the page's light colours, on the background of the page's cards."""
    colours = light_colours()
    for variable, colour in colours.items():
        svg = svg.replace(f"var({variable})", colour)
    svg = svg.replace("var(--font)", FONT)
    return svg.replace("<svg", f'<svg style="background: {colours["--card"]}"', 1)


def _steps_csv(report: Report) -> str:
    """One line per training step. A figure that a step does not have is empty."""
    sink = io.StringIO()
    names = ["phase", "step", "success", "mean_speedup", "reward", "kl", "doubted", "copies"]
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(names)
    for point in report.steps:
        values = [getattr(point, name) for name in names]
        writer.writerow(f"{value:.6g}" if isinstance(value, float) else value for value in values)
    return sink.getvalue()


def _table(head: Row, rows: Iterable[Row]) -> str:
    """A Markdown table: the first column is aligned left, the others right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _fenced(language: str, *lines: str) -> str:
    return "\n".join([f"```{language}", *lines, "```"])
