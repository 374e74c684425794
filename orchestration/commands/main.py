"""The command line `warpsmith`: the app, its commands and the entry point. What a command does stands in its module.

Bad input gives one line that names the thing and the remedy, exit code 2, and nothing is written. A run that cannot go
on gives one line, too, and exit code 1. Modules imported here must not import heavy packages: `--help` must stay fast.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from orchestration.commands.baseline import baseline
from orchestration.commands.bundle import bundle
from orchestration.commands.cluster import cluster
from orchestration.commands.collect import collect
from orchestration.commands.compare import compare
from orchestration.commands.evaluate import evaluate
from orchestration.commands.evolve import evolve
from orchestration.commands.guard import audit, gauntlet, hacks
from orchestration.commands.kernelbench import kernelbench
from orchestration.commands.leaderboard import leaderboard
from orchestration.commands.plan import plan
from orchestration.commands.refusal import INTERRUPTED, is_refusal, refuse
from orchestration.commands.report import report
from orchestration.commands.run import run
from orchestration.commands.serve import serve
from orchestration.commands.status import status, stop
from orchestration.commands.submit import logs, submit
from orchestration.commands.sweep import sweep
from orchestration.commands.tasks import tasks
from orchestration.commands.track import track
from orchestration.commands.watch import watch
from orchestration.run.watchdog import STALLED


class Commands(TyperGroup):
    """All commands. What any of them leaves to its caller is refused here, if bad input causes it."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command that was given."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if is_refusal(error):
                raise refuse(error) from None
            raise


app = typer.Typer(
    cls=Commands,
    help="Train a language model to write faster GPU code, from speed-up rewards alone (CUDA-L1).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    run, collect, evolve, sweep, plan, submit, logs, status, watch, stop, bundle, evaluate, serve, baseline, tasks,
    report, compare, leaderboard, track, gauntlet, audit,
):  # fmt: skip
    app.command()(command)
app.add_typer(hacks, name="hacks")
app.add_typer(cluster, name="cluster")
app.add_typer(kernelbench, name="kernelbench")


def main() -> None:
    """Entry point of the console script."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # a core of a busy machine has better to do than to spin
    try:
        app()
    except SystemExit as end:
        if end.code in (INTERRUPTED, STALLED):
            _leave(end.code)
        raise


def _leave(code: int) -> NoReturn:
    """Ends the process without finalising the interpreter, but calls the registered exit functions.

    Threads of Ray that were interrupted while they started have crashed the finalisation. Ray's exit functions end its
    processes.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
