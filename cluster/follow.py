"""Follows a job until it ends: prints its output once, whatever happens to the connection."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import time
from collections.abc import Coroutine
from typing import TypeVar

from cluster.client import SUCCEEDED, Jobs, JobState
from cluster.errors import ClusterError, NoAnswer, Silence, UnknownJob, first_line

STOPPED = 1

_SILENCE_SECONDS = 120.0  # how long the cluster may give no answer
_RECONNECT_SECONDS = 1.0
_CANCEL_SECONDS = 0.2  # until an interrupt is tried again
_T = TypeVar("_T")
_NOTE = re.compile(r"\d\d:\d\d:\d\d  \S")


def follow(jobs: Jobs, identity: str, *, silence: float = _SILENCE_SECONDS) -> JobState:
    """Prints a job's output until the job ends. Returns its last state.

    Connects again whenever the connection breaks, and says so if that does not succeed at once. Raises Silence after
    `silence` seconds without an answer, UnknownJob if the cluster has forgotten the job (a head that was replaced),
    KeyboardInterrupt.
    """
    output, answers, log = _Output(), _Patience(silence), _Patience(silence)
    while True:
        if asyncio.run(_until_interrupted(output.tail(jobs, identity))):
            log.succeeded()
        else:
            log.failed()
        try:
            state = jobs.state(identity)
            answers.succeeded()
            if not state.is_under_way and log.is_exhausted:
                print(f"{identity}: the rest of its output is out of reach", file=sys.stderr)
            if not state.is_under_way and (log.is_good or log.is_exhausted):
                return state
        except NoAnswer as error:
            if answers.is_good:
                print(f"{identity}: the connection is lost; trying again", file=sys.stderr)
            answers.failed()
            if answers.is_exhausted:
                raise Silence(
                    f"{identity}: {jobs.address} has not answered for {silence:.0f} s ({error}); the job may still "
                    "run, and the same command attaches to it again"
                ) from error
        except UnknownJob as error:
            raise UnknownJob(f"{error}, which was under way; the same `warpsmith submit` resumes the run") from error
        time.sleep(_RECONNECT_SECONDS)


def exit_code(state: JobState) -> int:
    """That of the job's process; 1 for a job that was stopped or lost, of which Ray knows none."""
    if state.status == SUCCEEDED:
        return 0
    return state.exit_code if state.exit_code and state.exit_code > 0 else STOPPED


def last_note(log: str) -> str:
    """The last line of a run's output that says how far it has come; empty if there is none yet."""
    return next((line.strip() for line in reversed(log.splitlines()) if _NOTE.match(line)), "")


async def _until_interrupted(work: Coroutine[None, None, _T]) -> _T:
    """The result of `work`. Raises KeyboardInterrupt once it is interrupted, even if a library takes the cancellation
    for its own, or if the signal reaches a thread other than the one that waits."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        if not task.done():
            task.cancel()
            loop.call_later(_CANCEL_SECONDS, interrupt)

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        await asyncio.wait([task])
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    if interrupted:
        raise KeyboardInterrupt
    return task.result()


class _Patience:
    """For how long something has failed without a success in between, against a limit in seconds."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._since: float | None = None

    def succeeded(self) -> None:
        self._since = None

    def failed(self) -> None:
        self._since = time.monotonic() if self._since is None else self._since

    @property
    def is_good(self) -> bool:
        return self._since is None

    @property
    def is_exhausted(self) -> bool:
        return self._since is not None and time.monotonic() - self._since > self._limit


class _Output:
    """A job's output. Prints each part once."""

    def __init__(self) -> None:
        self._printed = 0  # characters

    async def tail(self, jobs: Jobs, identity: str) -> bool:
        """Prints the new part until the log ends. With every connection, Ray sends a log from its beginning.

        Returns whether it was read to its present end; a connection that breaks may hide more.
        """
        from aiohttp import ClientError, WSServerHandshakeError

        position = 0
        try:
            async for chunk in jobs.tail(identity):
                fresh = chunk[max(self._printed - position, 0) :]
                position += len(chunk)
                self._printed = max(self._printed, position)
                print(fresh, end="", flush=True)
        except WSServerHandshakeError as error:
            if error.status in (401, 403):
                raise ClusterError(f"{jobs.address}: refuses the token ({first_line(error)})") from error
            return error.status == 404  # a job that has no log, or that is unknown: its state says which
        except (ClientError, OSError):
            return False
        return position >= self._printed
