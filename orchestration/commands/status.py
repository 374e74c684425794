"""`warpsmith status` and `warpsmith stop`: where a run stands, and its end at the next commit."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from configs.addresses import without_login
from orchestration.commands.refusal import STOPPED, refuse

if TYPE_CHECKING:
    from orchestration.run.directory import RunDirectory
    from orchestration.run.lock import Holder

_SHOWN = ("success_rate", "mean_speedup", "train/loss", "step_seconds")
_END_SECONDS = 60.0  # for actors and processes of a run to end, after its last commit
_LOOKS_EVERY = 0.2
_PATIENCE = 10.0  # seconds; an object store also fails when what is read is replaced at that moment

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's directory: a path, or a URI.")]


def status(
    directory: RunArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Show where a run stands: its process, phase, step, last commit and latest figures."""
    from orchestration.run.set_aside import FOLDER

    found = _status(_open(directory))
    if as_json:
        print(json.dumps(found))
        return
    print(f"{_shown(directory)}: {found['state']}")
    if found["phase"]:
        print(
            f"committed: {found['phase']}, {found['step']} of {found['steps']} steps, policy version "
            f"{found['policy_version']}, {found['seconds_since_commit']:.0f} s ago"
        )
    print(f"assessed: {', '.join(found['assessed']) or 'nothing'}")
    if found["set_aside"]:
        place = f"{_shown(directory).rstrip('/')}/{FOLDER}"
        print(f"set aside: {found['set_aside']} program(s) that lost too many workers (see {place})")
    if found["latest"]:
        print("latest step: " + "  ".join(f"{name} {value:.4g}" for name, value in found["latest"].items()))


def stop(
    directory: RunArgument,
    now: Annotated[bool, typer.Option("--now", help="End at the last commit, as Ctrl-C does.")] = False,
) -> None:
    """End a run on this machine at its next commit, and wait until it has ended. `warpsmith run` continues it."""
    run, shown = _open(directory), _shown(directory)
    holder, host = run.holder(), os.uname().nodename
    if holder is None:
        raise refuse(f"{shown}: no process runs in it")
    if holder.host != host:
        raise refuse(f"{shown}: process {holder.pid} on {holder.host} runs in it, and this is {host}")
    seconds = _END_SECONDS + (0.0 if now else run.read_config().drain_seconds)
    os.kill(holder.pid, signal.SIGINT if now else signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while run.holder() == holder:
        if time.monotonic() > deadline:
            raise refuse(f"{shown}: process {holder.pid} has not ended within {seconds:.0f} s", STOPPED)
        time.sleep(_LOOKS_EVERY)
    print(f"{shown}: {_status(run)['state']}")


def _open(directory: str) -> RunDirectory:
    """The run in a directory. Refuses what is none."""
    from learners.patience import Patience
    from orchestration.run.directory import RunDirectory, root_and_name

    run = RunDirectory(*root_and_name(directory), patience=Patience(_PATIENCE, first_pause=0.1))
    if not run.exists():
        raise refuse(f"{_shown(directory)}: not a run directory; give the folder that holds its config.yaml")
    return run


def _shown(directory: str) -> str:
    """The run's directory as it was given, without what logs in to it."""
    return without_login(directory).partition("?")[0] if "://" in directory else directory


def _status(run: RunDirectory) -> dict[str, Any]:
    from orchestration.run.state import RunState, phase_key

    config, state, holder = run.read_config(), run.read_state() or RunState(), run.holder()
    steps = {
        "sft": 1 + config.sft.epochs,
        "self_supervised": config.self_supervised.max_rounds,
        "contrastive_rl": config.contrastive_rl.steps,
    }
    key = phase_key(state.cycle, state.phase) if state.phase else ""
    return {
        "run": str(run),
        "state": "finished" if state.finished else _activity(holder),
        "running": holder is not None,
        "finished": state.finished,
        "phase": key,
        "step": state.step,
        "steps": steps.get(state.phase, 0),
        "policy_version": state.policy_version,
        "seconds_since_commit": max(0.0, time.time() - run.committed_at()),
        "assessed": list(state.extra.get("assessed", ())),
        "set_aside": run.set_aside.count(),
        "latest": _latest(run, key, state.step - 1) if key else {},
    }


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
