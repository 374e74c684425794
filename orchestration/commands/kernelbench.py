"""`warpsmith kernelbench`: a run in KernelBench's layout, and KernelBench's runs under our judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands.open_evaluator import opened_evaluator
from orchestration.commands.options import (
    Arch,
    Baselines,
    Containment,
    Levels,
    Marks,
    Preset,
    Store,
    Strict,
    select_levels,
)
from orchestration.commands.refusal import STOPPED, refuse

if TYPE_CHECKING:
    from evaluators.evaluator import Evaluator
    from evaluators.records import Task
    from orchestration.kernelbench.judge import Work
    from orchestration.kernelbench.rows import Judged

kernelbench = typer.Typer(help="Runs in KernelBench's layout: ours for its scripts, its own under our judge.",
                          no_args_is_help=True)  # fmt: skip


@kernelbench.command()
def export(
    place: Annotated[str, typer.Argument(metavar="RUN", help="A run's directory (a path or a URI) or a bundle.")],
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A checkout of KernelBench, or any folder to write into.")
    ],
    samples: Annotated[
        str, typer.Option(help="best: the best program of each task. all: the samples of the last stage.")
    ] = "best",
) -> None:
    """Write a run as KernelBench's runs, one a level, so that its own scripts score it."""
    from orchestration.kernelbench.export import ALL, BEST, export_run
    from orchestration.report.sources import opened

    if samples not in (BEST, ALL):
        raise refuse(f"--samples must be {BEST} or {ALL}, got {samples!r}")
    try:
        with opened(place) as source:
            written = export_run(source.run, folder, samples)
    except OSError as error:
        raise refuse(error, STOPPED) from None
    for level, run in written.runs.items():
        print(f"level {level}: {run}")
    print(f"times of baselines: {written.timing}")
    if written.left_out:
        print(f"left out, since KernelBench has no number of them: {', '.join(written.left_out)}")
    print(f"{written.kernels} programs of {written.problems} problems, {written.correct} right")


@kernelbench.command()
def judge(
    place: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run's folder in KernelBench's layout, or a .jsonl file with custom_code (CUDA-L1)."
        ),
    ],
    tasks: Annotated[
        str,
        typer.Option(
            help="Where its tasks are: a checkout, Parquet files, a .jsonl file, hf://datasets/... Default: the "
            "checkout that the run lies in, or the .jsonl file itself.",
            show_default=False,
        ),
    ] = "",
    arch: Arch = "auto",
    preset: Preset = "fast",
    baselines: Baselines = "eager",
    levels: Levels = "",
    strict: Strict = "drop_in",
    require_containment: Containment = "",
    audit: Marks = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.parquet",
            help="Where each verdict is written at once. The same command again judges only what is missing there.",
            show_default=False,
        ),
    ] = None,
    store: Store = None,
    builders: Annotated[int, typer.Option(min=0, help="How many programs to compile at once. 0: one per core.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of the table.")] = False,
) -> None:
    """Judge every program of a run again: our verdict beside KernelBench's. Exit code 1 if none is right."""
    from evaluators.tasks import profile_of
    from orchestration.commands.judged import print_judged
    from orchestration.kernelbench.judge import summary

    choices = (arch, preset, baselines, strict, require_containment, audit, store)
    with opened_evaluator(*choices, lambda device: _work_of(place, tasks, levels, profile_of(device.arch))) as (
        evaluator,
        (work, listed),
    ):
        rows = _judge_all(evaluator, work, strict, output, builders)
    made = summary(rows, work, listed)
    if as_json:
        print(json.dumps(made, allow_nan=False))
    else:
        print_judged(rows, made)
    raise typer.Exit(0 if any(row.verdict.succeeded for row in rows) else STOPPED)


def _work_of(place: Path, tasks: str, levels: str, profile: str) -> tuple[Work, list[Task]]:
    """The programs with their tasks, and all tasks of these levels."""
    from evaluators.tasks import load_tasks
    from orchestration.kernelbench.judge import Work, read_samples, tasks_beside
    from orchestration.kernelbench.layout import LayoutError

    samples = read_samples(place)
    if not (source := tasks or tasks_beside(place)):
        raise LayoutError(f"{place}: --tasks must name its tasks, since the run lies in no checkout")
    listed = select_levels(load_tasks(source, profile), levels)
    return Work.of(place, samples, listed, [task.level for task in listed] if levels else []), listed


def _judge_all(evaluator: Evaluator, work: Work, strict: str, output: Path | None, builders: int) -> list[Judged]:
    """Every program, built ahead and judged one after the other."""
    from evaluators.compile.ahead import most_builders
    from orchestration.commands.judged import progress
    from orchestration.kernelbench.judge import build_ahead, judge_all

    try:
        build_ahead(evaluator, work, builders or most_builders())
        return list(progress(judge_all(evaluator, work, strict, output), len(work.pairs)))
    except OSError as error:
        raise refuse(f"--output {output}: {error}", STOPPED) from None
