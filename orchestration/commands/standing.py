"""Where a run stands, as its directory says, and how that is printed."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from configs.addresses import without_login
from orchestration.commands.refusal import refuse

if TYPE_CHECKING:
    from orchestration.run.directory import RunDirectory
    from orchestration.run.lock import Holder

_SHOWN = ("success_rate", "mean_speedup", "train/loss", "step_seconds")
_PATIENCE = 10.0  # seconds; an object store also fails when what is read is replaced at that moment


def open_run(directory: str) -> RunDirectory:
    """The run in a directory. Refuses what is none."""
    from learners.patience import Patience
    from orchestration.run.directory import RunDirectory, root_and_name

    run = RunDirectory(*root_and_name(directory), patience=Patience(_PATIENCE, first_pause=0.1))
    if not run.exists():
        raise refuse(f"{shown(directory)}: not a run directory; give the folder that holds its config.yaml")
    return run


def shown(directory: str) -> str:
    """The run's directory as it was given, without what logs in to it."""
    return without_login(directory).partition("?")[0] if "://" in directory else directory


def standing(run: RunDirectory) -> dict[str, Any]:
    """What the directory says: the process, the last commit, the latest figures."""
    from orchestration.run.outside import most_steps
    from orchestration.run.state import RunState, phase_key

    config, state, holder = run.read_config(), run.read_state() or RunState(), run.holder()
    key = phase_key(state.cycle, state.phase) if state.phase else ""
    return {
        "run": str(run),
        "state": "finished" if state.finished else _activity(holder),
        "running": holder is not None,
        "finished": state.finished,
        "phase": key,
        "step": state.step,
        "steps": most_steps(config).get(state.phase, 0),
        "policy_version": state.policy_version,
        "seconds_since_commit": max(0.0, time.time() - run.committed_at()),
        "assessed": list(state.extra.get("assessed", ())),
        "set_aside": run.set_aside.count(),
        "latest": _latest(run, key, state.step - 1) if key else {},
    }


def print_standing(directory: str, found: dict[str, Any], file: TextIO | None = None) -> None:
    """Prints what `standing` found, but the process: some lines on the last commit and the latest step."""
    from orchestration.run.set_aside import FOLDER

    file = file or sys.stdout
    if found["phase"]:
        print(
            f"committed: {found['phase']}, {found['step']} of {found['steps']} steps, policy version "
            f"{found['policy_version']}, {found['seconds_since_commit']:.0f} s ago",
            file=file,
        )
    print(f"assessed: {', '.join(found['assessed']) or 'nothing'}", file=file)
    if found["set_aside"]:
        place = f"{shown(directory).rstrip('/')}/{FOLDER}"
        print(f"set aside: {found['set_aside']} program(s) that lost too many workers (see {place})", file=file)
    if found["latest"]:
        latest = "  ".join(f"{name} {value:.4g}" for name, value in found["latest"].items())
        print(f"latest step: {latest}", file=file)


def _activity(holder: Holder | None) -> str:
    """What a run that is not finished does."""
    if holder is not None:
        return f"running as process {holder}"
    return "stopped; `warpsmith run` continues it"


def _latest(run: RunDirectory, key: str, step: int) -> dict[str, float]:
    """The figures of a step that are worth a line."""
    with suppress(FileNotFoundError):
        rows = run.metrics.read_step(key, step).to_pylist()
        return {row["name"]: row["value"] for row in rows if row["name"] in _SHOWN}
    return {}
