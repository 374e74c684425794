"""The attempts at a run: jobs `NAME`, `NAME-2`, ... of one cluster, of which at most one is under way.

The run's directory is the truth on how far it has come; a job is only a process that works on it. So an attempt that
failed, was stopped or was lost with the cluster's head is followed by another one, which resumes the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Literal

from cluster.client import SUCCEEDED, Jobs, JobState
from cluster.errors import ClusterError, IdentityTaken
from cluster.job import DIRECTORY, SETTINGS, Job

_RACES = 5  # how often others may take the id of an attempt before this gives up


@dataclass(frozen=True)
class Submission:
    """What a submission came to: a new attempt, one that was under way, or none since the run is finished."""

    kind: Literal["started", "attached", "finished"]
    identity: str
    earlier: tuple[JobState, ...]


def finished_line(run: str) -> str:
    """What `warpsmith run` prints last if the run is finished: a job's exit code alone does not say so."""
    return f"{run}: finished"


def submit(jobs: Jobs, job: Job) -> Submission:
    """Starts the next attempt at a run, unless one is under way or the run is finished with the same configuration.

    Raises ClusterError if a job under way has the same name and is another run, or has another configuration.
    """
    for _ in range(_RACES):
        known = jobs.all()
        earlier = tuple(state for state in known if state.run == job.run)
        for state in earlier:
            if state.is_under_way:
                _refuse_another(state, job)
                return Submission("attached", state.identity, earlier)
        if earlier and is_finished(jobs, earlier[-1], job):
            return Submission("finished", earlier[-1].identity, earlier)
        try:
            identity = jobs.submit(job, _next_identity(job.run, {state.identity for state in known}))
            return Submission("started", identity, earlier)
        except IdentityTaken:  # the same command was given twice at this moment, or Ray remembers a deleted job
            continue
    raise ClusterError(f"{job.run}: other jobs took its submission id {_RACES} times; give the command again")


def is_finished(jobs: Jobs, attempt: JobState, job: Job) -> bool:
    """Whether an attempt finished the run of a job with this very configuration, as it printed."""
    same = (attempt.directory, attempt.settings) == (job.metadata[DIRECTORY], job.metadata[SETTINGS])
    has_ended_well = same and attempt.status == SUCCEEDED
    return has_ended_well and finished_line(job.run) in jobs.log(attempt.identity).splitlines()[-5:]


def find(jobs: Jobs, name: str) -> list[JobState]:
    """The attempts at the run `name`, the oldest first; or the one attempt whose job has this id.

    Raises ClusterError if the cluster knows neither.
    """
    known = [state for state in jobs.all() if state.run]
    if attempts := [state for state in known if state.run == name]:
        return attempts
    if attempt := [state for state in known if state.identity == name]:
        return attempt
    others = sorted({state.run for state in known})
    listed = f"it has {', '.join(others[:10])}{', ...' if len(others) > 10 else ''}" if others else "it has none"
    raise ClusterError(f"{name}: {jobs.address} knows no such run; {listed}")


def _refuse_another(state: JobState, job: Job) -> None:
    """Raises ClusterError if a job under way is not an attempt at what shall be submitted."""
    if state.directory != job.metadata[DIRECTORY]:
        raise ClusterError(
            f"name={job.run}: job {state.identity} of the cluster works on another run of this name, in "
            f"{state.directory}; give another name"
        )
    if state.settings != job.metadata[SETTINGS]:
        raise ClusterError(
            f"{job.run}: job {state.identity} is under way with another configuration; `warpsmith stop {job.run} "
            "--address ...` first, or give another name"
        )


def _next_identity(run: str, taken: Iterable[str]) -> str:
    """The first of NAME, NAME-2, ... that no job has. What does not belong into a URL becomes a dash."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", run).strip("-") or "run"
    names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
    taken = set(taken)
    return next(name for name in names if name not in taken)
