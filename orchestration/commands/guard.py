"""The guard's commands: `warpsmith gauntlet`, `warpsmith audit` and `warpsmith hacks`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from orchestration.commands.refusal import ARCH_HELP, STOPPED, STORE_HELP, refuse

hacks = typer.Typer(help="The hack-case database: programs that cheated, or seem to.", no_args_is_help=True)
_CASE_HELP = "A case's id, or how it begins."
_Store = Annotated[Path | None, typer.Option(help=STORE_HELP, show_default=False)]


def gauntlet(
    arch: Annotated[str, typer.Option(help=ARCH_HELP)] = "auto",
    only: Annotated[str, typer.Option(help="Programs whose path holds this text alone.", show_default=False)] = "",
    folder: Annotated[
        Path | None, typer.Option(help="Where to look for programs; the bundled ones if left out.", show_default=False)
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Programs at a time; 0: one a GPU, or one a core.")] = 0,
    output: Annotated[Path | None, typer.Option(help="A Parquet file for all results.", show_default=False)] = None,
    min_caught: Annotated[float, typer.Option(min=0, max=1, help="Share of exploits that must be caught.")] = 1.0,
    max_refused: Annotated[int, typer.Option(min=0, help="Honest programs that may be refused.")] = 0,
    believe: Annotated[bool, typer.Option("--believe", help="Without the guard, to see what it is worth.")] = False,
    store: _Store = None,
) -> None:
    """Judge programs that cheat, and honest ones that look like it. Exit code 1 when one is missed or refused, or more
    than may be."""
    import pyarrow.parquet as pq

    from configs.load import ConfigError
    from evaluators.gauntlet import GauntletError, discover, result_table
    from evaluators.gauntlet import run as runs
    from evaluators.gauntlet.programs import FOLDER
    from evaluators.tasks import profile_of
    from orchestration.commands.evaluate import default_store, machine_arch, open_to_runners, warn_if_closed

    kept = store or default_store()
    with open_to_runners():
        try:
            named = machine_arch() if arch == "auto" else arch
            programs = [one for one in discover(profile_of(named), folder or FOLDER) if only in one.id]
            if not programs:
                raise GauntletError(f"no program for {named} is named {only!r}")
            kept.mkdir(parents=True, exist_ok=True)
            warn_if_closed(kept)
            results = runs.run_all(programs, named, kept, workers or runs.workers_of(named), guarded=not believe)
        except (GauntletError, ConfigError, runs.BaselineError, ValueError, OSError) as error:
            raise refuse(error) from None
    if output is not None:
        pq.write_table(result_table(results), output)
    console = Console()
    runs.print_results(results, console if console.is_terminal else Console(width=160))
    raise typer.Exit(0 if runs.suffices(results, min_caught, max_refused) else 1)


def audit(
    source: Annotated[
        str, typer.Argument(metavar="TASKS", help="`bundled`, a KernelBench folder, a JSONL file or one task's file.")
    ],
    levels: Annotated[str, typer.Option(help="Comma-separated levels; all if left out.", show_default=False)] = "",
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.parquet", help="Where to write all audits.", show_default=False)
    ] = None,
    jobs: Annotated[int, typer.Option(help="Tasks side by side; each may take 8 GiB and 900 s.")] = 1,
) -> None:
    """Mark tasks that cannot tell a good program from a cheat; the last line counts. Exit code 1 when none was
    audited."""
    from rich.markup import escape
    from rich.progress import track

    from evaluators.audit.run import audit_tasks, summarise_audits, write_audits
    from evaluators.tasks import TaskError, load_tasks
    from orchestration.commands.evaluate import chosen_levels

    try:
        chosen = chosen_levels(load_tasks(source, "cpu"), levels)
        if output is not None and not output.absolute().parent.is_dir():
            raise ValueError(f"--output {output}: there is no folder {output.parent}")
        running = audit_tasks(chosen, jobs=jobs)
    except (TaskError, ValueError) as error:
        raise refuse(error) from None
    found = list(track(running, "auditing", total=len(chosen), console=Console(stderr=True), transient=True))
    table = Table("id", "name", "kinds", "why", box=None)
    for one in found:
        if not one.is_clean:
            why = one.failure or "; ".join(finding.message for finding in one.findings)
            table.add_row(one.task, one.name, " ".join(one.kinds) or "fails", escape(why))
    console = Console()
    if table.row_count:
        (console if console.is_terminal else Console(width=160)).print(table)
    if output is not None:
        try:
            write_audits(found, output)
        except OSError as error:
            raise refuse(f"--output {output}: {error}", STOPPED) from None
    print(summarise_audits(found))
    raise typer.Exit(STOPPED if all(one.failure for one in found) else 0)


@hacks.command("list")
def list_cases(
    status: Annotated[
        str, typer.Option(help="seed, suspect, confirmed or rejected; all if left out.", show_default=False)
    ] = "",
    store: _Store = None,
) -> None:
    """List the cases; the last line is their count."""
    from evaluators.guard.cases import Status

    try:
        wanted = Status(status) if status else None
    except ValueError:
        raise refuse(f"--status {status} is none of {', '.join(Status)}") from None
    found = [case for case in _cases(store).all() if wanted in (None, case.status)]
    table = Table("id", "status", "task", "found by", "why", box=None)
    for case in found:
        table.add_row(case.id, str(case.status), case.task, " ".join(case.kinds), case.why)
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)
    print(f"{len(found)} cases")


@hacks.command()
def show(case: Annotated[str, typer.Argument(help=_CASE_HELP)], store: _Store = None) -> None:
    """Show a case: where it comes from, why it is one, its program, and the cases most like it."""
    from evaluators.guard.cases import CaseError

    cases = _cases(store)
    try:
        found = cases.find(case)
    except CaseError as error:
        raise refuse(error) from None
    print(f"{found.id}  {found.status}  {found.task} on {found.arch}  of {found.origin} {found.added}".rstrip())
    print(f"{' '.join(found.kinds)}: {found.why}")
    for other, likeness in cases.nearest(found.source, found.kinds, found.reference, without=(found.id,)).hacks:
        print(f"{likeness:.0%} like {other.id} ({other.origin}): {other.why}")
    print(f"\n{found.source}", end="")


@hacks.command()
def confirm(case: Annotated[str, typer.Argument(help=_CASE_HELP)], store: _Store = None) -> None:
    """Say that a case is a hack."""
    _judge(case, "confirmed", store)


@hacks.command()
def reject(case: Annotated[str, typer.Argument(help=_CASE_HELP)], store: _Store = None) -> None:
    """Say that a case is none: it is no longer compared with."""
    _judge(case, "rejected", store)


def _cases(store: Path | None):  # type: ignore[no-untyped-def]
    from evaluators.guard.cases import HackCases
    from orchestration.commands.evaluate import default_store

    return HackCases((store or default_store()) / "hacks.parquet")


def _judge(case: str, status: str, store: Path | None) -> None:
    from evaluators.guard.cases import CaseError, Status

    try:
        judged = _cases(store).judge(case, Status(status))
    except CaseError as error:
        raise refuse(error) from None
    print(f"{judged.id}  {judged.status}")
