"""Ends an attempt at its run's next commit."""

from __future__ import annotations

import time

from cluster.client import Jobs, JobState
from cluster.errors import ClusterError, NoAnswer, Silence

_LOOKS_EVERY = 1.0
_MARGIN_SECONDS = 30.0  # for Ray to notice that the processes have ended


def drain(jobs: Jobs, attempt: JobState) -> JobState:
    """Asks a run's job to end, and waits until it has. Returns its last state.

    The job has `stop_seconds` to commit the step under way; then Ray kills it. Lost connections are survived. Raises
    ClusterError if the job has ended already, Silence if it has not ended in time or the cluster does not answer.
    """
    if not attempt.is_under_way:
        raise ClusterError(f"{attempt.run}: no job works on it; the last, {attempt.identity}, is {attempt.status}")
    jobs.stop(attempt.identity)
    seconds = attempt.stop_seconds + _MARGIN_SECONDS
    deadline, reason = time.monotonic() + seconds, "it is still under way"
    while time.monotonic() < deadline:
        try:
            state = jobs.state(attempt.identity)
            if not state.is_under_way:
                return state
        except NoAnswer as error:
            reason = str(error)
        time.sleep(_LOOKS_EVERY)
    raise Silence(f"{attempt.run}: job {attempt.identity} has not ended within {seconds:.0f} s ({reason})")
