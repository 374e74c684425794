"""What `warpsmith status` and `warpsmith stop` do with `--address`, and what all commands share that ask a cluster."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from orchestration.commands.refusal import INTERRUPTED, STOPPED, refuse
from orchestration.commands.standing import open_run, print_standing, standing

if TYPE_CHECKING:
    from cluster.client import Jobs, JobState

Address = Annotated[
    str, typer.Option(envvar="RAY_API_SERVER_ADDRESS", metavar="URL", help="The dashboard of the Ray cluster.")
]
RunName = Annotated[str, typer.Argument(metavar="NAME", help="A run's name, or one of its jobs (NAME-2).")]


@contextmanager
def opened(address: str) -> Iterator[Jobs]:
    """The jobs of a cluster. What goes wrong with it within the block is refused in one line."""
    from cluster.client import Jobs
    from cluster.errors import NoAnswer

    try:
        yield Jobs(address)
    except NoAnswer as error:
        raise refuse(f"{address}: the cluster does not answer: {error}", STOPPED) from None


def show_jobs(name: str, address: str, as_json: bool) -> None:
    """Prints the jobs of a run on a cluster, and how far the last one has come."""
    from cluster.attempts import find
    from cluster.follow import last_note

    with opened(address) as jobs:
        attempts = find(jobs, name)
        note = last_note(jobs.log(attempts[-1].identity))
    last = attempts[-1]
    if as_json:
        print(json.dumps({"run": last.run, "directory": last.directory, "latest": note, "jobs": _rows(attempts)}))
        return
    print(f"{last.run}: job {last.identity} is {last.status}, {_times(last)}")
    if last.status == "FAILED" and last.message:
        print(f"message: {last.message}")
    for earlier in reversed(attempts[:-1]):
        print(f"before: job {earlier.identity} is {earlier.status}, {_times(earlier)}")
    print(f"directory: {last.directory}")
    print(f"latest: {note or 'nothing yet'}")
    show_directory(last.directory)


def show_directory(directory: str, file: TextIO | None = None) -> None:
    """Prints how far a run has come, if its directory is a folder that this machine sees, too.

    A directory on an object store is left out: `warpsmith status URI` has the login that the jobs do not tell.
    """
    if "://" in directory or not os.path.isfile(os.path.join(os.path.expanduser(directory), "config.yaml")):
        return
    try:
        print_standing(directory, standing(open_run(os.path.expanduser(directory))), file)
    except OSError as error:
        print(f"{directory}: {error}", file=sys.stderr)


def stop_job(name: str, address: str) -> None:
    """Ends a run on a cluster at its next commit, and waits until its job has ended."""
    from cluster.attempts import find
    from cluster.errors import Silence
    from cluster.follow import last_note
    from cluster.stop import drain

    with opened(address) as jobs:
        attempt = find(jobs, name)[-1]
        try:
            state = drain(jobs, attempt)
        except Silence as error:
            raise refuse(error, STOPPED) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        note = last_note(jobs.log(attempt.identity))
    print(f"{state.run}: job {state.identity} is {state.status}; the same `warpsmith submit` resumes the run")
    print(f"latest: {note or 'nothing yet'}")


def _rows(attempts: list[JobState]) -> list[dict[str, Any]]:
    keys = ("identity", "status", "exit_code", "began", "ended", "message")
    return [{key: getattr(attempt, key) for key in keys} for attempt in attempts]


def _times(state: JobState) -> str:
    """Since when a job runs, or when it began and for how long it ran."""
    if not state.began:
        return "not begun"
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state.began))
    return f"began {began}" + (f", ended after {state.ended - state.began:.0f} s" if state.ended else "")
