"""Submits a training run as a Ray job: uploads this checkout to a cluster and starts `warpsmith run` there.

`python -m cluster.submit CONFIG [key=value ...] --address http://HEAD:8265`. It never starts or changes a cluster. Bad
input gives one line that names the thing and the remedy, exit code 2, and nothing is submitted.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from configs.load import ConfigError, load_config

CHECKOUT = Path(__file__).resolve().parent.parent

LEFT_OUT = (".git", ".venv", "runs", "mlruns", "build", "dist")
"""Folders at the top of the checkout that are not uploaded. Deeper folders of these names are."""

CACHES = ("__pycache__", "*.egg-info", ".*_cache", ".hypothesis")

SET_BY_RUNS = ("PYTHONPATH", "TOKENIZERS_PARALLELISM", "RAY_DEDUP_LOGS")
"""`warpsmith run` sets these for its actors (orchestration/fleet/ray_cluster.py). Ray refuses jobs that set them."""

_BAD_INPUT = 2
_INTERRUPTED = 130
_SILENCE_SECONDS = 120.0  # how long the cluster may give no answer while logs are followed
_RECONNECT_SECONDS = 1.0
_HEAD_SECONDS = 60.0  # how long a new head may refuse jobs
_END_SECONDS = 60.0  # for a run's actors to end, after it has drained; Ray would kill a job after three in all
_NOT_READY = "No available agent"  # part of the error of Ray's job server until its first node is up


class SubmissionError(Exception):
    """A job cannot be submitted, or a cluster does not answer. One line that names it and the remedy."""


@dataclass(frozen=True)
class Job:
    """A job: the arguments of `warpsmith`, and the environment variables of its processes."""

    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def entrypoint(self) -> str:
        """The shell command. It takes `python` from the PATH of the cluster's head node."""
        return shlex.join(["python", "-m", "orchestration.commands.main", *self.arguments])

    @property
    def runtime_env(self) -> dict[str, Any]:
        """Ray's runtime environment: the checkout is the working directory, and processes import Warpsmith from it."""
        excludes = [*(f"/{name}" for name in LEFT_OUT), *CACHES]
        return {"working_dir": str(CHECKOUT), "excludes": excludes, "env_vars": dict(self.environment)}


def training_job(
    config: str, overrides: Sequence[str] = (), *, variables: Sequence[str] = (), dry_run: bool = False
) -> Job:
    """The job that runs `config` with `overrides`. Checks everything that can be checked without the cluster.

    `variables` names environment variables of this process that the job gets. Raises ConfigError or SubmissionError.
    """
    if not (CHECKOUT / "pyproject.toml").is_file():
        raise SubmissionError(f"{CHECKOUT}: not a checkout of Warpsmith; run `python -m cluster.submit` in one")
    settings = load_config(config, overrides)
    if "://" not in settings.root and not settings.root.startswith(("/", "~")):
        raise SubmissionError(
            f"root={settings.root}: is in the job's working directory, which Ray deletes; "
            "give an absolute path that the cluster's nodes share, or a URI (root=s3://...)"
        )
    arguments = ["run", _config_for_job(config), *overrides, *(["--dry-run"] if dry_run else [])]
    patience = {"RAY_JOB_STOP_WAIT_TIME_S": str(math.ceil(settings.drain_seconds + _END_SECONDS))}
    return Job(tuple(arguments), {**patience, **_read_variables(variables)}, {"warpsmith.run": settings.name})


def _config_for_job(config: str) -> str:
    """The configuration as the job finds it: its path in the checkout, or its bare name. Raises SubmissionError."""
    file = Path(config)
    if not file.is_file():
        return config
    path = file.resolve()
    if not path.is_relative_to(CHECKOUT) or path.relative_to(CHECKOUT).parts[0] in LEFT_OUT:
        raise SubmissionError(f"{config}: is not uploaded with the job; put it into the checkout, such as in configs/")
    return path.relative_to(CHECKOUT).as_posix()


def _read_variables(variables: Sequence[str]) -> dict[str, str]:
    """The values of environment variables of this process. Raises SubmissionError."""
    for name in variables:
        if name in SET_BY_RUNS:
            raise SubmissionError(f"--env {name}: runs set it themselves; leave it out")
        if name not in os.environ:
            raise SubmissionError(f"--env {name}: not set here; export it first (only the name is given)")
    return {name: os.environ[name] for name in variables}


def connect(address: str) -> Any:
    """Ray's client for the jobs of a cluster.

    Raises SubmissionError if no cluster answers at `address`, or if it needs a token that this process does not have.
    """
    if not address.startswith(("http://", "https://")):
        raise SubmissionError(f"--address {address}: must be that of the dashboard, such as http://127.0.0.1:8265")
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    try:
        return JobSubmissionClient(address)
    except AuthenticationError as error:
        raise SubmissionError(
            f"--address {address}: needs a token; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the cluster's token "
            "(or put it into ~/.ray/auth_token)"
        ) from error
    except (RuntimeError, OSError, ValueError, KeyError) as error:  # also for a server that is not Ray's
        raise SubmissionError(
            f"--address {address}: no Ray dashboard answers ({_first_line(error)}); is the port forwarded?"
        ) from error


def submit(client: Any, job: Job) -> str:
    """Uploads the checkout and starts the job. Returns its id. Raises SubmissionError if the cluster refuses the job.

    A new head refuses jobs for some seconds, so the job is submitted again for up to a minute.
    """
    deadline = time.monotonic() + _HEAD_SECONDS
    while True:
        try:
            with _quietly():
                return client.submit_job(
                    entrypoint=job.entrypoint, runtime_env=job.runtime_env, metadata=dict(job.metadata)
                )
        except (RuntimeError, OSError, ValueError) as error:
            if _NOT_READY not in str(error) or time.monotonic() > deadline:
                raise SubmissionError(f"the cluster did not take the job: {_first_line(error)}") from error
        time.sleep(_RECONNECT_SECONDS)


@contextmanager
def _quietly() -> Iterator[None]:
    """Hides Ray's log lines on every left-out file and every connection. Failures are raised anyway."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def follow(client: Any, identity: str) -> int:
    """Prints a job's output until it ends. Returns its exit code, 1 for a job that was stopped or lost.

    Connects again if the connection breaks. Raises SubmissionError after two minutes without an answer.
    """
    from aiohttp import ClientError

    output, silent_since = _Output(), 0.0
    while True:
        try:
            with _quietly():
                asyncio.run(output.tail(client, identity))
            details = client.get_job_info(identity)
            if details.status.is_terminal():
                print(f"job {identity}: {details.status}", file=sys.stderr)
                return _exit_code(str(details.status), details.driver_exit_code)
            silent_since = 0.0
        except (RuntimeError, OSError, ClientError) as error:
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since > _SILENCE_SECONDS:
                reason = _first_line(error)
                raise SubmissionError(
                    f"job {identity}: the cluster stopped answering ({reason}); the job may still run"
                ) from error
        time.sleep(_RECONNECT_SECONDS)


class _Output:
    """A job's output. Prints each part once."""

    def __init__(self) -> None:
        self._printed = 0

    async def tail(self, client: Any, identity: str) -> None:
        """Prints the new part until the log ends. With every connection, Ray sends a log from its beginning."""
        position = 0
        async for chunk in client.tail_job_logs(identity):
            fresh = chunk[max(self._printed - position, 0) :]
            position += len(chunk)
            self._printed = max(self._printed, position)
            print(fresh, end="", flush=True)


def _exit_code(status: str, code: int | None) -> int:
    """0 for a job that succeeded, never 0 for any other."""
    return 0 if status == "SUCCEEDED" else code if code and code > 0 else 1


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    config: Annotated[
        str, typer.Argument(help="A configuration file of this checkout, or the name of one of ours (`local`).")
    ],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value ...", show_default=False)] = None,
    address: Annotated[
        str, typer.Option(envvar="RAY_API_SERVER_ADDRESS", help="The cluster's dashboard.")
    ] = "http://127.0.0.1:8265",
    env: Annotated[
        list[str] | None,
        typer.Option(help="Environment variable to pass on. Ray's dashboard shows its value.", show_default=False),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Print the output, and exit with the job's exit code.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="The job checks everything, prints the plan and starts nothing.")
    ] = False,
) -> None:
    """Submit `warpsmith run CONFIG [key=value ...]` to a Ray cluster. The same command again resumes the run."""
    try:
        job = training_job(config, overrides or [], variables=env or [], dry_run=dry_run)
        client = connect(address)
        identity = submit(client, job)
    except (ConfigError, SubmissionError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(_BAD_INPUT) from None
    if not wait:
        print(f"{identity}\nfollow it: ray job logs --follow --address {address} {identity}")
        print(f"stop it:   ray job stop --address {address} {identity}")
        return
    print(f"job {identity}: submitted", file=sys.stderr)
    try:
        code = follow(client, identity)
    except SubmissionError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        print(f"the job goes on; stop it: ray job stop --address {address} {identity}", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    raise typer.Exit(code)


if __name__ == "__main__":
    app()
