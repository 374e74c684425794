"""Runs a sweep on this machine, one run after the other, each in a process of its own.

A finished run is skipped, and one that was interrupted goes on, so the same command resumes a sweep. A branch begins
with a bundle of the run that it is a branch of.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from configs.checks import leaves
from configs.load import changed_keys
from orchestration.experiments.sweep import Sweep, Trial
from orchestration.run.bundle import Limits, write_bundle
from orchestration.setup.requirements import requirements_of

_INTERRUPTED = 130  # the exit code of an interrupted run (orchestration.commands.refusal)
_LIMITS = Limits(1 << 40, 1 << 30)  # bytes of a bundle, and of each of its files, which stay on this machine


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
        if trial.origin is not None and trial.origin in failed and not trial.run.exists():
            tell(f"{place}: begins where {trial.origin.name} ends, which did not end well")
            failed.append(trial)
            continue
        tell(place)
        code = _take(trial, environment)
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        if code:
            tell(f"{place}: ended with exit code {code}; the same command tries it again")
            failed.append(trial)
        elif not trial.is_finished():
            tell(f"{place}: ended early; the same command goes on with it")
            failed.append(trial)
    return failed


def _take(trial: Trial, environment: Mapping[str, str]) -> int:
    """Runs a trial, or goes on with it; returns the exit code."""
    if trial.origin is None or trial.run.exists():
        return _run(trial.words, environment)
    with tempfile.TemporaryDirectory(prefix="warpsmith-branch-") as folder:
        bundle = Path(folder) / "bundle"
        origin = trial.origin.run
        config = origin.read_config()
        write_bundle(origin, config, bundle, _LIMITS, requirements_of(origin, config))
        return _run(("--from-bundle", str(bundle), "--branch", *differences(trial.origin, trial)), environment)


def differences(origin: Trial, trial: Trial) -> list[str]:
    """What a branch changes, as `key=value`."""
    values = {key: value for key, value, _ in leaves(trial.config)}
    keys = ("name", *changed_keys(origin.config, trial.config))
    return [f"{key}={json.dumps(values[key])}" for key in dict.fromkeys(keys)]


def _run(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """The exit code of a run, which shows its progress and its report on standard error. An interrupt of the terminal
    reaches the run itself, which is waited for."""
    command = [sys.executable, "-m", "orchestration.commands.main", "run", *words]
    with subprocess.Popen(command, env=dict(environment), stdout=sys.stderr) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            return _INTERRUPTED
