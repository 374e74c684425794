"""`warpsmith submit` and `warpsmith logs`: runs as jobs of a Ray cluster, which they neither start nor change."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands.refusal import INTERRUPTED, STOPPED, refuse
from orchestration.commands.remote import Address, RunName, opened, show_directory

if TYPE_CHECKING:
    from cluster.attempts import Submission
    from cluster.client import Jobs
    from cluster.job import Job


def submit(
    config: Annotated[
        str, typer.Argument(help="A configuration file of this checkout, or the name of one of ours (`local`).")
    ],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value ...", show_default=False)] = None,
    address: Address = "http://127.0.0.1:8265",
    env: Annotated[
        list[str] | None,
        typer.Option(help="Environment variable to pass on. Ray's dashboard shows its value.", show_default=False),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Print the output, and exit with the run's exit code.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="The job does `warpsmith run --dry-run` there, which this waits for."),
    ] = False,
    installed: Annotated[
        bool, typer.Option("--installed", help="Upload the configuration alone: the nodes have Warpsmith installed.")
    ] = False,
) -> None:
    """Train as a job of a Ray cluster. The same command again attaches to the job, or resumes the run."""
    from cluster.job import training_job

    job = training_job(config, overrides or [], variables=env or [], dry_run=dry_run, installed=installed)
    with opened(address) as jobs:
        identity = _begin(jobs, job)
        if wait or dry_run:
            _follow(jobs, identity, f"warpsmith stop {job.run}" if job.run else f"ray job stop {identity}")
        else:
            _say_how_to_follow(job.run, address)


def logs(
    run: RunName,
    address: Address = "http://127.0.0.1:8265",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job ends, and exit with the run's exit code.")
    ] = False,
) -> None:
    """Print the output of a run's last job on a Ray cluster, or of one of its jobs (NAME-2)."""
    from cluster.attempts import find

    with opened(address) as jobs:
        attempt = find(jobs, run)[-1]
        if follow:
            _follow(jobs, attempt.identity, f"warpsmith stop {attempt.run}")
        else:
            print(jobs.log(attempt.identity), end="")


def _begin(jobs: Jobs, job: Job) -> str:
    """Starts the job, or finds the one that works on its run. Returns its id; ends the command if nothing is to do."""
    from cluster import attempts
    from cluster.job import DIRECTORY

    if not job.run:
        identity = jobs.submit(job)
        print(f"job {identity}: started", file=sys.stderr)
        return identity
    found = attempts.submit(jobs, job)
    print(_said(found, job.run), file=sys.stderr)
    if found.kind == "finished":
        raise typer.Exit(0)
    show_directory(job.metadata[DIRECTORY], file=sys.stderr)
    return found.identity


def _said(found: Submission, run: str) -> str:
    """One line on what a submission came to."""
    if found.kind == "finished":
        return f"{run}: finished, by job {found.identity}; changed keys can extend it, name=OTHER begins another run"
    if found.kind == "attached":
        return f"job {found.identity}: under way"
    if not found.earlier:
        return f"job {found.identity}: started"
    last = found.earlier[-1]
    return f"job {found.identity}: started, which resumes the run; job {last.identity} is {last.status}"


def _say_how_to_follow(run: str, address: str) -> None:
    for purpose, words in (("follow it", "logs --follow"), ("see it", "status"), ("stop it", "stop")):
        print(f"{purpose + ':':<11}warpsmith {words} {run} --address {address}")


def _follow(jobs: Jobs, identity: str, stopping: str) -> None:
    """Prints a job's output until it ends, and exits with its exit code. Ctrl-C leaves the job alone."""
    from cluster.errors import Silence, UnknownJob
    from cluster.follow import exit_code, follow

    try:
        state = follow(jobs, identity)
    except (Silence, UnknownJob) as error:
        raise refuse(error, STOPPED) from None
    except KeyboardInterrupt:
        with suppress(BrokenPipeError):
            print(f"job {identity} goes on; stop it: {stopping} --address {jobs.address}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    reason = f" ({state.message})" if state.status == "FAILED" and state.message else ""
    print(f"job {identity}: {state.status}{reason}", file=sys.stderr)
    show_directory(state.directory, file=sys.stderr)
    raise typer.Exit(exit_code(state))
