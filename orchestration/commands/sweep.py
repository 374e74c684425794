"""`warpsmith sweep`: runs a list of configurations with several seeds each, and prints the table that compares them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands.machine import child_environment
from orchestration.commands.refusal import INTERRUPTED, STOPPED, is_refusal, refuse
from orchestration.commands.remote import opened

if TYPE_CHECKING:
    from orchestration.experiments.sweep import Sweep, Trial


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sweep's YAML file: root, arms, seeds, settings.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value ... of all runs", show_default=False)] = None,
    address: Annotated[
        str,
        typer.Option(metavar="URL", help="Run them as jobs of the Ray cluster there, not here.", show_default=False),
    ] = "",
    at_once: Annotated[int, typer.Option(help="With --address: jobs that are under way at a time.", min=1)] = 1,
    installed: Annotated[
        bool, typer.Option("--installed", help="With --address: the nodes have Warpsmith, only configurations travel.")
    ] = False,
    table: Annotated[bool, typer.Option("--table", help="Run nothing: print the table of what is there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, list the runs, start nothing.")] = False,
) -> None:
    """Run several configurations and seeds in turn, and compare them. The same command again resumes."""
    from orchestration.experiments.sweep import read_sweep

    found = read_sweep(file, overrides or [])
    if dry_run:
        _list(found)
        return
    failed = [] if table else _run(found, address, at_once, installed=installed)
    print_tables(found)
    if failed:
        named = ", ".join(trial.name for trial in failed)
        raise refuse(f"{len(failed)} of {len(found.trials)} runs did not end well: {named}", STOPPED)


def _list(found: Sweep) -> None:
    """Prints the runs, those that are not finished as the arguments that start them, once their own dry runs have
    passed. Refuses the first that does not pass, by its name."""
    from rich.console import Console

    from orchestration.commands.dry_run import print_plan

    states = {trial.name: "finished" if trial.is_finished() else _told(trial) for trial in found.trials}
    for trial in found.trials:
        if states[trial.name] == "finished":
            continue
        try:
            print_plan(trial.config, Console(quiet=True))
        except Exception as error:
            if is_refusal(error):
                raise refuse(f"{trial.name}: {error}") from None
            raise
    for name, state in states.items():
        print(f"{name:<32} {state}")


def _told(trial: Trial) -> str:
    """The arguments that start a run, and what it begins with."""
    return " ".join(trial.words) + (f"  (a branch of {trial.origin.name})" if trial.origin else "")


def _run(found: Sweep, address: str, at_once: int, *, installed: bool) -> list[Trial]:
    """Runs what is not finished; returns what failed."""
    from orchestration.experiments.as_jobs import run_as_jobs
    from orchestration.experiments.in_turn import run_in_turn

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        if not address:
            return run_in_turn(found, tell, child_environment())
        if any(trial.origin for trial in found.trials):
            tell("branches: as a job, each run does all of its phases itself")
        with opened(address) as jobs:
            return run_as_jobs(found, jobs, at_once, tell, installed=installed)
    except KeyboardInterrupt:
        tell("stopped; the same command again goes on")
        raise typer.Exit(INTERRUPTED) from None


def print_tables(found: Sweep) -> None:
    """Prints the table of each group of tasks, of what the runs have measured so far."""
    from rich.console import Console

    from orchestration.experiments.table import compare_arms, read_reports, table_of
    from orchestration.report.terminal import WIDTH, print_table

    compared = compare_arms(read_reports(found))
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH, no_color=True)
    if not compared:
        print(f"{found.name}: nothing has been measured yet")
    for index, group in enumerate(compared):
        print_table(table_of(group, len(found.seeds)), console, has_note=index == 0)
