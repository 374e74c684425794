"""Runs a sweep as jobs of a Ray cluster, some at once.

The jobs go on if this process ends; the same command attaches to them, and resumes runs whose jobs have ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from orchestration.experiments.sweep import Sweep, Trial

if TYPE_CHECKING:
    from cluster.client import Jobs

_POLL_SECONDS = 10.0


def run_as_jobs(
    sweep: Sweep,
    jobs: Jobs,
    at_once: int,
    tell: Callable[[str], None],
    *,
    installed: bool = False,
    poll_seconds: float = _POLL_SECONDS,
) -> list[Trial]:
    """Has every run done by a job, at most `at_once` at a time; returns those that the jobs did not finish.

    `installed`: the nodes have Warpsmith, so that only configurations travel. Raises ClusterError.
    """
    from cluster import attempts
    from cluster.client import SUCCEEDED
    from cluster.job import Job, training_job

    waiting, under_way, failed = list(sweep.trials), dict[str, tuple[Trial, Job]](), list[Trial]()
    while waiting or under_way:
        while waiting and len(under_way) < at_once:
            trial = waiting.pop(0)
            place, *overrides = trial.words
            job = training_job(place, overrides, installed=installed)
            found = attempts.submit(jobs, job)
            tell(f"{trial.name}: {found.kind}, job {found.identity}")
            if found.kind != "finished":
                under_way[found.identity] = trial, job
        if under_way:
            time.sleep(poll_seconds)
        states = {state.identity: state for state in jobs.all()}
        for identity, (trial, job) in list(under_way.items()):
            state = states.get(identity)
            if state is not None and state.is_under_way:
                continue
            del under_way[identity]
            status = state.status if state is not None else "unknown to the cluster"
            is_finished = state is not None and attempts.is_finished(jobs, state, job)
            early = "" if is_finished or status != SUCCEEDED else ", but the run ended early; the same command goes on"
            tell(f"{trial.name}: job {identity} is {status}{early}")
            if not is_finished:
                failed.append(trial)
    return failed
