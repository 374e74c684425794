"""The Ray Jobs API as this project uses it: records instead of Ray's, a bound on every request, errors of one line.

Ray's own client waits for ever on a connection that went dead, so requests get a time-out and logs a heartbeat here.
"""

from __future__ import annotations

import io
import logging
import os
import time
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.errors import ClusterError, IdentityTaken, NoAnswer, UnknownJob, first_line
from cluster.job import DIRECTORY, PATIENCE, RUN, SETTINGS, Job

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

LARGEST_UPLOAD = 64 << 20
"""Bytes of code, packed, that may travel with a job. The checkout has a few MiB."""

UNDER_WAY, SUCCEEDED = ("PENDING", "RUNNING"), "SUCCEEDED"

_REQUEST_SECONDS = 30.0
_UPLOAD_SECONDS = 300.0
_HEARTBEAT_SECONDS = 20.0
_HEAD_SECONDS = 60.0  # how long a new head may refuse jobs
_PAUSE_SECONDS = 1.0
_NOT_READY = "No available agent"  # part of the error of Ray's job server until its first node is up
_KILLED_AFTER = 3.0  # seconds after a stop, if the job's environment does not say


@dataclass(frozen=True)
class JobState:
    """A job as the cluster last knew it. `began` and `ended` are seconds since 1970, 0 if it has not.

    `run`, `directory` and `settings` are empty for a job that is no attempt at a run.
    """

    identity: str
    status: str
    message: str
    exit_code: int | None
    began: float
    ended: float
    run: str
    directory: str
    settings: str
    stop_seconds: float

    @property
    def is_under_way(self) -> bool:
        return self.status in UNDER_WAY


class Jobs:
    """The jobs of one cluster, whose dashboard is at `address`. Raises ClusterError if no cluster answers there."""

    def __init__(self, address: str) -> None:
        if not address.startswith(("http://", "https://")):
            raise ClusterError(f"--address {address}: must be that of the dashboard, such as http://127.0.0.1:8265")
        self.address = address.rstrip("/")
        try:
            with self._answers(), _quietly():
                self._client = _bounded_client(self.address)
        except NoAnswer as error:
            raise ClusterError(
                f"--address {address}: no Ray dashboard answers ({error}); is it right, and is the port forwarded?"
            ) from error

    def submit(self, job: Job, identity: str | None = None) -> str:
        """Uploads what travels with a job, and starts it. Returns its id: `identity`, or one that Ray makes.

        A new head refuses jobs for some seconds, so the job is submitted again for up to a minute. Raises IdentityTaken
        or another ClusterError.
        """
        deadline = time.monotonic() + _HEAD_SECONDS
        while True:
            try:
                with self._answers(), _quietly(), job.runtime_env() as environment:
                    return self._client.submit_job(
                        entrypoint=job.entrypoint,
                        runtime_env=environment,
                        metadata=dict(job.metadata),
                        submission_id=identity,
                    )
            except NoAnswer as error:
                if identity and "already exists" in str(error):
                    raise IdentityTaken(identity) from error
                if _NOT_READY not in str(error) or time.monotonic() > deadline:
                    raise ClusterError(f"the cluster did not take the job: {error}") from error
            time.sleep(_PAUSE_SECONDS)

    def all(self) -> list[JobState]:
        """Every job that the cluster remembers and that was submitted to it, the oldest first."""
        with self._answers():
            found = [_state(details) for details in self._client.list_jobs() if details.submission_id]
        return sorted(found, key=lambda job: (job.began or float("inf"), len(job.identity), job.identity))

    def state(self, identity: str) -> JobState:
        """A job's state. Raises UnknownJob or NoAnswer."""
        with self._answers(identity):
            return _state(self._client.get_job_info(identity))

    def log(self, identity: str) -> str:
        """All that a job has printed so far."""
        with self._answers(identity):
            return self._client.get_job_logs(identity)

    def stop(self, identity: str) -> None:
        """Sends a job SIGTERM. Ray kills it if it has not ended after its `stop_seconds`."""
        with self._answers(identity):
            self._client.stop_job(identity)

    async def tail(self, identity: str) -> AsyncIterator[str]:
        """A job's log from its beginning, part by part, until the job ends or the connection is lost.

        Raises aiohttp's errors or OSError if the connection breaks, or if the other side does not answer a heartbeat.
        """
        import aiohttp

        client: Any = self._client
        patience = aiohttp.ClientTimeout(sock_connect=_REQUEST_SECONDS)
        async with aiohttp.ClientSession(headers=client._headers, timeout=patience) as session:
            url = f"{client._address}/api/jobs/{identity}/logs/tail"
            async with session.ws_connect(url, ssl=client._ssl_context or True, heartbeat=_HEARTBEAT_SECONDS) as socket:
                async for message in socket:
                    if message.type == aiohttp.WSMsgType.TEXT:
                        yield message.data
                if socket.close_code in (None, aiohttp.WSCloseCode.ABNORMAL_CLOSURE):
                    raise ConnectionError("the connection broke") from socket.exception()

    @contextmanager
    def _answers(self, identity: str = "") -> Iterator[None]:
        """Turns what a request raises into errors of this package."""
        from ray.exceptions import AuthenticationError

        try:
            yield
        except AuthenticationError as error:
            raise ClusterError(_on_token(self.address)) from error
        except (RuntimeError, OSError, ValueError, KeyError, TypeError) as error:  # also of a server that is not Ray's
            if identity and "status code 404" in str(error):
                raise UnknownJob(f"{self.address}: the cluster does not know a job {identity}") from error
            raise NoAnswer(first_line(error)) from error


def _bounded_client(address: str) -> JobSubmissionClient:
    """Ray's client, whose requests end, and which refuses to upload what is too large. Importing Ray takes seconds."""
    from ray.job_submission import JobSubmissionClient

    class Bounded(JobSubmissionClient):
        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
            data = options.get("data")
            if data is not None:
                _refuse_large(data)
            seconds = _REQUEST_SECONDS if data is None else _UPLOAD_SECONDS
            return super()._do_request(method, endpoint, timeout=seconds, **options)

    return Bounded(address)


def _refuse_large(package: bytes) -> None:
    """Raises ClusterError if a packed upload is larger than LARGEST_UPLOAD. Names its largest files."""
    if len(package) <= LARGEST_UPLOAD:
        return
    with zipfile.ZipFile(io.BytesIO(package)) as packed:
        largest = sorted(packed.infolist(), key=lambda file: -file.compress_size)[:3]
    names = ", ".join(f"{file.filename} ({file.compress_size / 2**20:.0f} MiB)" for file in largest)
    raise ClusterError(
        f"the checkout is too large to travel with a job: {len(package) / 2**20:.0f} MiB packed, and at most "
        f"{LARGEST_UPLOAD >> 20} may; name in .gitignore, or move to storage that the nodes share: {names}"
    )


def _state(details: Any) -> JobState:
    metadata, environment = details.metadata or {}, (details.runtime_env or {}).get("env_vars") or {}
    return JobState(
        identity=details.submission_id or "",
        status=str(getattr(details.status, "value", details.status)),
        message=first_line(details.message or ""),
        exit_code=details.driver_exit_code,
        began=(details.start_time or 0) / 1000,
        ended=(details.end_time or 0) / 1000,
        run=metadata.get(RUN, ""),
        directory=metadata.get(DIRECTORY, ""),
        settings=metadata.get(SETTINGS, ""),
        stop_seconds=float(environment.get(PATIENCE, _KILLED_AFTER)),
    )


def _on_token(address: str) -> str:
    """What to do if a cluster refuses this process's token, or asks for one."""
    if os.environ.get("RAY_AUTH_MODE") == "token":
        return f"--address {address}: refuses the token of RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token"
    return (
        f"--address {address}: needs a token; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the cluster's token "
        "(or put it into ~/.ray/auth_token)"
    )


@contextmanager
def _quietly() -> Iterator[None]:
    """Hides Ray's log lines on every left-out file and every connection. Failures are raised anyway."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
