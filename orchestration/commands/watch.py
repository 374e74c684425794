"""`warpsmith watch`: shows a run from outside as it goes on, until it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands.refusal import INTERRUPTED, STOPPED, refuse
from orchestration.commands.standing import open_run, shown

if TYPE_CHECKING:
    from rich.console import Console

    from orchestration.report.view import View
    from orchestration.report.watching import Watch

_FAILURES = 5  # looks in a row that may fail while an object store or a shared disk is away
_ENDS_AFTER = 2  # looks in a row without a process, since one command may give a run to the next


def watch(
    directory: Annotated[str, typer.Argument(metavar="RUN", help="A run's directory: a path, or a URI.")],
    once: Annotated[bool, typer.Option("--once", help="Print one view, and end.")] = False,
    interval: Annotated[float, typer.Option(metavar="SECONDS", help="Time between two looks.", min=0.1)] = 2.0,
) -> None:
    """Show a run as it goes on: phases, speed-ups, outcomes, best programs, queues, warnings. Ends with the run, with
    the exit code of the run's own command. Reads alone: it neither locks the run nor writes into it."""
    from rich.console import Console

    from orchestration.report.watch_view import print_view
    from orchestration.report.watching import Watch
    from orchestration.run.interrupt import Interruptible

    watched, console = Watch(open_run(directory), shown(directory)), Console()
    try:
        with Interruptible():
            if once:
                print_view(_look(watched, 1, interval), console)
                return
            last = _in_place(watched, console, interval) if console.is_terminal else _by_line(watched, interval)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    print_view(last, console)
    if last.exit_code:
        raise typer.Exit(last.exit_code)


def _in_place(watched: Watch, console: Console, interval: float) -> View:
    """Redraws the view until the run has ended; returns the last one."""
    from rich.live import Live

    from orchestration.report.watch_view import render_view

    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="ellipsis") as live:
        for view in views_of(watched, interval):
            live.update(render_view(view, console.height), refresh=True)
    return view


def _by_line(watched: Watch, interval: float) -> View:
    """Prints a line for each step until the run has ended; returns the last view."""
    from orchestration.report.watch_view import lines_since

    before = None
    for view in views_of(watched, interval):
        for line in lines_since(before, view):
            print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)
        before = view
    assert before is not None
    return before


def views_of(watched: Watch, interval: float) -> Iterator[View]:
    """What is seen of a run, look by look, until it has ended."""
    without = 0
    while True:
        view = _look(watched, _FAILURES, interval)
        yield view
        without = without + 1 if view.ended else 0
        if view.ended == "finished" or without >= _ENDS_AFTER:
            return
        time.sleep(interval)


def _look(watched: Watch, tries: int, interval: float) -> View:
    """One look. Ends the command with one line if the run cannot be read."""

    while True:
        try:
            return watched.look()
        except OSError as error:
            tries -= 1
            if tries <= 0:
                raise refuse(f"{watched.place}: {error}", STOPPED) from None
            time.sleep(interval)
