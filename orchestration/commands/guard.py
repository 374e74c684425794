"""The guard's commands: `warpsmith gauntlet`, `warpsmith audit` and `warpsmith hacks`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from configs.cache_folder import cache_folder
from orchestration.commands.options import Arch, Levels, Store, select_levels
from orchestration.commands.refusal import STOPPED, refuse
from orchestration.commands.store import open_to_runners, warn_if_closed

if TYPE_CHECKING:
    from rich.table import Table

    from evaluators.audit.records import TaskAudit
    from evaluators.guard.cases import HackCases

hacks = typer.Typer(help="The hack-case database: programs that cheated, or that may have.", no_args_is_help=True)
_CaseId = Annotated[str, typer.Argument(help="A case's id, or its first characters.")]


def gauntlet(
    arch: Arch = "auto",
    only: Annotated[
        str, typer.Option(help="Judge only programs whose path contains this text.", show_default=False)
    ] = "",
    folder: Annotated[
        Path | None, typer.Option(help="Folder of programs. Default: the bundled ones.", show_default=False)
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Programs judged at a time. 0: one per GPU, or per core.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Parquet file for all results.", show_default=False)] = None,
    min_caught: Annotated[float, typer.Option(min=0, max=1, help="Share of exploits that must be caught.")] = 1.0,
    max_refused: Annotated[int, typer.Option(min=0, help="Number of honest programs that may be refused.")] = 0,
    believe: Annotated[bool, typer.Option("--believe", help="Turn the guard off, to see what it is worth.")] = False,
    store: Store = None,
) -> None:
    """Judge programs that cheat, and honest ones that look like it. Exit code 1 if too many are missed or refused."""
    import pyarrow.parquet as pq
    from rich.console import Console

    from configs.load import ConfigError
    from evaluators.gauntlet import GauntletError, discover, result_table
    from evaluators.gauntlet import run as runs
    from evaluators.gauntlet.programs import FOLDER
    from evaluators.tasks import profile_of
    from orchestration.commands.machine import machine_arch

    store = store or cache_folder()
    with open_to_runners():
        try:
            arch = machine_arch() if arch == "auto" else arch
            programs = [program for program in discover(profile_of(arch), folder or FOLDER) if only in program.id]
            if not programs:
                raise GauntletError(f"no program for {arch} is named {only!r}")
            store.mkdir(parents=True, exist_ok=True)
            warn_if_closed(store)
            results = runs.run_all(programs, arch, store, workers or runs.workers_of(arch), guarded=not believe)
        except (GauntletError, ConfigError, runs.BaselineError, ValueError, OSError) as error:
            raise refuse(error) from None
    if output is not None:
        pq.write_table(result_table(results), output)
    console = Console()
    runs.print_results(results, console if console.is_terminal else Console(width=160))
    raise typer.Exit(0 if runs.suffices(results, min_caught, max_refused) else 1)


def audit(
    source: Annotated[
        str,
        typer.Argument(
            metavar="TASKS", help="`bundled`, a KernelBench folder or data set, a JSONL file or one task's file."
        ),
    ],
    levels: Levels = "",
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.parquet", help="Parquet file for all audits.", show_default=False)
    ] = None,
    jobs: Annotated[int, typer.Option(help="Tasks audited at a time. Each may take 8 GiB and 900 s.")] = 1,
) -> None:
    """Mark tasks that cannot tell a good program from a cheat. The last line counts them. Exit code 1 if none could be
    audited."""
    from rich.console import Console
    from rich.progress import track

    from evaluators.audit.run import audit_tasks, summarise_audits, write_audits
    from evaluators.tasks import TaskError, load_tasks

    try:
        tasks = select_levels(load_tasks(source, "cpu"), levels)
        if output is not None and not output.absolute().parent.is_dir():
            raise ValueError(f"--output {output}: there is no folder {output.parent}")
        running = audit_tasks(tasks, jobs=jobs)
    except (TaskError, ValueError) as error:
        raise refuse(error) from None
    audits = list(track(running, "auditing", total=len(tasks), console=Console(stderr=True), transient=True))
    table = _audit_table(audits)
    console = Console()
    if table.row_count:
        (console if console.is_terminal else Console(width=160)).print(table)
    if output is not None:
        try:
            write_audits(audits, output)
        except OSError as error:
            raise refuse(f"--output {output}: {error}", STOPPED) from None
    print(summarise_audits(audits))
    raise typer.Exit(STOPPED if all(one.failure for one in audits) else 0)


def _audit_table(audits: list[TaskAudit]) -> Table:
    """A row per task that is marked, or whose audit failed."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("id", "name", "kinds", "why", box=None)
    for task_audit in audits:
        if not task_audit.is_clean:
            why = task_audit.failure or "; ".join(finding.message for finding in task_audit.findings)
            table.add_row(task_audit.task, task_audit.name, " ".join(task_audit.kinds) or "fails", escape(why))
    return table


@hacks.command("list")
def list_cases(
    status: Annotated[
        str, typer.Option(help="seed, suspect, confirmed or rejected. Default: all.", show_default=False)
    ] = "",
    store: Store = None,
) -> None:
    """List the cases. The last line is their number."""
    from rich.console import Console
    from rich.table import Table

    from evaluators.guard.cases import Status

    try:
        wanted = Status(status) if status else None
    except ValueError:
        raise refuse(f"--status {status} is none of {', '.join(Status)}") from None
    cases = [case for case in _open_cases(store).all() if wanted in (None, case.status)]
    table = Table("id", "status", "task", "found by", "why", box=None)
    for case in cases:
        table.add_row(case.id, str(case.status), case.task, " ".join(case.kinds), case.why)
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)
    print(f"{len(cases)} cases")


@hacks.command()
def show(case: _CaseId, store: Store = None) -> None:
    """Show a case: its origin, the reason why it is one, the cases most like it, and its program."""
    from evaluators.guard.cases import CaseError

    cases = _open_cases(store)
    try:
        shown = cases.find(case)
    except CaseError as error:
        raise refuse(error) from None
    print(f"{shown.id}  {shown.status}  {shown.task} on {shown.arch}  of {shown.origin} {shown.added}".rstrip())
    print(f"{' '.join(shown.kinds)}: {shown.why}")
    for similar, likeness in cases.nearest(shown.source, shown.kinds, shown.reference, without=(shown.id,)).hacks:
        print(f"{likeness:.0%} like {similar.id} ({similar.origin}): {similar.why}")
    print(f"\n{shown.source}", end="")


@hacks.command()
def confirm(case: _CaseId, store: Store = None) -> None:
    """Record that a case is a hack."""
    _judge(case, "confirmed", store)


@hacks.command()
def reject(case: _CaseId, store: Store = None) -> None:
    """Record that a case is no hack. New programs are no longer compared with it."""
    _judge(case, "rejected", store)


def _open_cases(store: Path | None) -> HackCases:
    from evaluators.guard.cases import HackCases

    return HackCases((store or cache_folder()) / "hacks.parquet")


def _judge(case: str, status: str, store: Path | None) -> None:
    from evaluators.guard.cases import CaseError, Status

    try:
        judged = _open_cases(store).judge(case, Status(status))
    except CaseError as error:
        raise refuse(error) from None
    print(f"{judged.id}  {judged.status}")
