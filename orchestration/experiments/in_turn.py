"""Runs a sweep on this machine, one run after the other, each in a process of its own.

A finished run is skipped, and one that was interrupted goes on, so the same command resumes a sweep.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping

from orchestration.experiments.sweep import Sweep, Trial

_INTERRUPTED = 130  # the exit code of an interrupted run (orchestration.commands.refusal)


def run_in_turn(sweep: Sweep, tell: Callable[[str], None], environment: Mapping[str, str]) -> list[Trial]:
    """Takes every run to its end; returns those that ended otherwise, also if they were asked to, which does not stop
    the others. Raises KeyboardInterrupt once the run under way has ended after one. `environment`: of the runs'
    processes."""
    failed = []
    for number, trial in enumerate(sweep.trials, start=1):
        place = f"{number}/{len(sweep.trials)}  {trial.name}"
        if trial.is_finished():
            tell(f"{place}: finished before")
            continue
        tell(place)
        code = _run(trial, environment)
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        if code:
            tell(f"{place}: ended with exit code {code}; the same command tries it again")
            failed.append(trial)
        elif not trial.is_finished():
            tell(f"{place}: ended early; the same command goes on with it")
            failed.append(trial)
    return failed


def _run(trial: Trial, environment: Mapping[str, str]) -> int:
    """The exit code of a run, which shows its progress and its report on standard error. An interrupt of the terminal
    reaches the run itself, which is waited for."""
    command = [sys.executable, "-m", "orchestration.commands.main", "run", *trial.words]
    with subprocess.Popen(command, env=dict(environment), stdout=sys.stderr) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            return _INTERRUPTED
