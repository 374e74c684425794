"""The command line: `warpsmith run`, `evaluate`, `baseline`, `tasks`, `report`, `gauntlet`, `audit`, `hacks`.

Bad input is one line that names the thing and the remedy, exit code 2, and nothing written. A run that cannot go on is
one line too, exit code 1.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from orchestration.commands.guard import audit, gauntlet, hacks
from orchestration.commands.refusal import ARCH_HELP, STOPPED, STORE_HELP, refuse, with_remedy

app = typer.Typer(
    help="Train a language model to write faster GPU code, from speed-up rewards alone (CUDA-L1).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(gauntlet)
app.command()(audit)
app.add_typer(hacks, name="hacks")
_log = logging.getLogger(__name__)
_INTERRUPTED = 130
_BASELINES_HELP = "Comma-separated baselines, or all that exist there."


@app.command()
def run(
    config: Annotated[str, typer.Argument(help="A configuration file, or the name of one of ours (`local`).")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value ...", show_default=False)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the plan, start nothing.")
    ] = False,
) -> None:
    """Train: SFT, self-supervised learning and contrastive RL, as configured. The same command again resumes."""
    from configs.load import ConfigError, load_config
    from evaluators.tasks import TaskError
    from orchestration.commands.evaluate import machine_arch

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        settings = load_config(config, overrides or [])
        if settings.evaluator.arch == "auto":
            settings.evaluator.arch = machine_arch()
        if dry_run:
            from orchestration.commands.dry_run import print_plan

            print_plan(settings, Console())
            return
    except (ConfigError, TaskError) as error:
        raise refuse(error) from None
    from actors.learner import LearnerLost
    from actors.pool_records import PoolExhausted
    from learners.engine import LearnerError
    from learners.policy import PolicyError
    from orchestration.driver import run as train
    from orchestration.report.progress import Progress
    from orchestration.run.errors import RunDirectoryError
    from orchestration.run.interrupt import Interruptible
    from orchestration.step.teachers import TeacherError

    try:
        with Interruptible(), Progress() as progress:
            train(settings, progress)
    except (ConfigError, TaskError, PolicyError, TeacherError, RunDirectoryError) as error:
        raise refuse(error) from None
    except (LearnerLost, LearnerError, PoolExhausted, OSError) as error:
        _log.debug("the run ends", exc_info=True)
        raise refuse(f"{error}; the same command again goes on after the last committed step", STOPPED) from None
    except KeyboardInterrupt:
        print("stopped; the same command again goes on after the last committed step", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None


@app.command()
def evaluate(
    task: Annotated[str, typer.Argument(help="A bundled task's id, or a file in KernelBench's format.")],
    file: Annotated[Path, typer.Argument(help="A file that defines ModelNew.")],
    arch: Annotated[str, typer.Option(help=ARCH_HELP)] = "auto",
    preset: Annotated[str, typer.Option(help="fast, thorough or paper.")] = "fast",
    baselines: Annotated[str, typer.Option(help=_BASELINES_HELP)] = "eager",
    require_shapes: Annotated[
        bool, typer.Option("--require-shapes", help="A program that fails at other shapes than the task's is wrong.")
    ] = False,
    store: Annotated[Path | None, typer.Option(help=STORE_HELP, show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict record alone.")] = False,
) -> None:
    """Judge one program against a task's reference. Exit code 0 when it is correct, 1 when it is not."""
    from evaluators.evaluator import Evaluator
    from evaluators.host.open_device import open_device
    from evaluators.tasks import TaskError, find_task, profile_of
    from orchestration.commands.evaluate import (
        baselines_named,
        confirmation,
        default_store,
        open_to_runners,
        warn_if_closed,
    )

    folder = store or default_store()
    with open_to_runners():
        try:
            device = open_device(arch)
            reference = find_task(task, profile_of(device.arch))
            source = file.read_text()
            evaluator = Evaluator(
                device.arch,
                preset=preset,
                baselines=baselines_named(baselines, device.arch),
                require_shapes=require_shapes,
                confirm=confirmation(device, folder),
                store=folder,
            )
        except (TaskError, ValueError, OSError, ImportError) as error:
            raise refuse(with_remedy(error)) from None
        with evaluator:
            warn_if_closed(folder)
            verdict = evaluator.evaluate(reference, source, author=f"file:{file.name}")
    if as_json:
        print(json.dumps(verdict.to_row(), default=dict))
    else:
        from orchestration.commands.verdict import print_verdict

        print_verdict(verdict, Console())
    raise typer.Exit(0 if verdict.succeeded else 1)


@app.command()
def baseline(
    source: Annotated[
        str,
        typer.Argument(
            metavar="TASKS",
            help="`bundled`, a KernelBench folder, a JSONL file or one task's file; or a run's configuration (.yaml).",
        ),
    ],
    arch: Annotated[str, typer.Option(help=ARCH_HELP)] = "auto",
    baselines: Annotated[str, typer.Option(help=_BASELINES_HELP)] = "all",
    preset: Annotated[str, typer.Option(help="fast, thorough or paper.")] = "fast",
    levels: Annotated[str, typer.Option(help="Comma-separated levels; all if left out.", show_default=False)] = "",
    store: Annotated[Path | None, typer.Option(help=STORE_HELP, show_default=False)] = None,
    builders: Annotated[int, typer.Option(min=0, help="Compile so many at once; 0: one a core.")] = 0,
) -> None:
    """Measure tasks' baselines into the store, from which verdicts take them. Exit code 1 when none was measured."""
    from configs.load import ConfigError
    from evaluators.compile.ahead import most_builders
    from evaluators.evaluator import Evaluator
    from evaluators.failures import InfraError
    from evaluators.host.open_device import open_device
    from evaluators.tasks import TaskError, profile_of
    from orchestration.commands.baseline import fill_store, tasks_named
    from orchestration.commands.evaluate import (
        baselines_named,
        chosen_levels,
        default_store,
        open_to_runners,
        warn_if_closed,
    )

    folder = store or default_store()
    with open_to_runners():
        try:
            device = open_device(arch)
            found = chosen_levels(tasks_named(source, profile_of(device.arch)), levels)
            names = baselines_named(baselines, device.arch)
            if not set(names) - {"eager"}:
                raise ValueError("--baselines names none beside eager, which every verdict measures")
            evaluator = Evaluator(device.arch, preset=preset, baselines=names, store=folder)
        except (ConfigError, TaskError, ValueError, OSError, ImportError) as error:
            raise refuse(with_remedy(error)) from None
        with evaluator:
            warn_if_closed(folder)
            try:
                evaluator.start()
            except InfraError as error:
                raise refuse(error, STOPPED) from None
            filled = fill_store(evaluator, found, builders or most_builders())
    print(filled)
    raise typer.Exit(0 if filled.measured else STOPPED)


@app.command()
def tasks(
    path: Annotated[
        str, typer.Argument(help="A KernelBench folder or a JSONL file, or several; the bundled tasks if left out.")
    ] = ("bundled"),
) -> None:
    """List tasks, and which of them cannot tell a good program from a cheat; the last line is their count."""
    from evaluators.audit.marks import marked_among, shipped_marks
    from evaluators.tasks import TaskError, load_tasks
    from evaluators.tasks.loader import load_variants

    try:
        found = load_tasks(path)
    except TaskError as error:
        raise refuse(error) from None
    marks = marked_among(found, shipped_marks())
    table = Table("id", "level", "name", "tags", "variants", *(["cannot tell"] if marks else []), box=None)
    for task in found:
        variants = len(load_variants(task.id))
        kinds = [" ".join(marks[task.id].kinds) if task.id in marks else ""] if marks else []
        table.add_row(task.id, str(task.level), task.name, " ".join(task.tags), str(variants or ""), *kinds)
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table)
    print(f"{len(found)} tasks")


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.")],
    publish: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Also write a page of results with its raw rows.", show_default=False),
    ] = None,
) -> None:
    """Show a run's tables and write report/index.html."""
    from configs.load import ConfigError
    from orchestration.report import build_report, print_report, render_html
    from orchestration.report.publish import publish as publish_page
    from orchestration.run.directory import RunDirectory
    from orchestration.run.errors import RunDirectoryError

    run_directory = RunDirectory(str(directory.parent), directory.name)
    try:
        made = build_report(run_directory)
    except (RunDirectoryError, ConfigError) as error:
        raise refuse(error) from None
    print_report(made, Console())
    print(run_directory.write_report(render_html(made)))
    if publish is not None:
        try:
            print(publish_page(made, run_directory, publish))
        except OSError as error:
            raise refuse(f"--publish {publish}: {error}", STOPPED) from None


def main() -> None:
    """Entry point of the console script."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        app()
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            _leave(_INTERRUPTED)
        raise


def _leave(code: int) -> NoReturn:
    """Ends the process without taking the interpreter down: threads of Ray that were interrupted as they started have
    crashed that. What others have registered for the end (Ray ends its processes then) is done."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
