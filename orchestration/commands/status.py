"""`warpsmith status` and `warpsmith stop`: where a run stands, and its end at the next commit.

With `--address` both speak of a run's jobs on a Ray cluster (`remote.py`), else of its directory.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Annotated

import typer

from orchestration.commands.refusal import STOPPED, refuse
from orchestration.commands.remote import show_jobs, stop_job
from orchestration.commands.standing import open_run, print_standing, shown, standing

_END_SECONDS = 60.0  # for actors and processes of a run to end, after its last commit
_LOOKS_EVERY = 0.2

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's directory: a path, or a URI. With --address: the run's name.")
]
Cluster = Annotated[
    str | None, typer.Option(metavar="URL", help="Ask a Ray cluster, by its dashboard, for the run's jobs.")
]


def status(
    directory: RunArgument,
    address: Cluster = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Show where a run stands: its process, phase, step, last commit and latest figures; or its jobs on a cluster."""
    if address is not None:
        show_jobs(directory, address, as_json)
        return
    found = standing(open_run(directory))
    if as_json:
        print(json.dumps(found))
        return
    print(f"{shown(directory)}: {found['state']}")
    print_standing(directory, found)


def stop(
    directory: RunArgument,
    address: Cluster = None,
    now: Annotated[bool, typer.Option("--now", help="End at the last commit, as Ctrl-C does.")] = False,
) -> None:
    """End a run at its next commit, here or on a cluster, and wait for that. The command that began it continues it."""
    if address is not None:
        if now:
            raise refuse("--now: Ray's job server cannot interrupt a job as Ctrl-C does; leave out --now or --address")
        stop_job(directory, address)
        return
    run, name = open_run(directory), shown(directory)
    holder, host = run.holder(), os.uname().nodename
    if holder is None:
        raise refuse(f"{name}: no process runs in it")
    if holder.host != host:
        raise refuse(f"{name}: process {holder.pid} on {holder.host} runs in it, and this is {host}")
    seconds = _END_SECONDS + (0.0 if now else run.read_config().drain_seconds)
    os.kill(holder.pid, signal.SIGINT if now else signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while run.holder() == holder:
        if time.monotonic() > deadline:
            raise refuse(f"{name}: process {holder.pid} has not ended within {seconds:.0f} s", STOPPED)
        time.sleep(_LOOKS_EVERY)
    print(f"{name}: {standing(run)['state']}")
