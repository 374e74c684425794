"""What can be known of a run by reading alone: no lock is touched, and nothing is written into its folder."""

from __future__ import annotations

import os

from configs.schema import RunConfig
from orchestration.run.directory import RunDirectory
from orchestration.run.lease import claimant, start_of
from orchestration.run.lock import Holder, named_holder
from orchestration.run.pulse import FINISHED, KILLED, STOPPED, Pulse

BEATS_MISSED = 4
"""Beats that may be late before a pulse no longer says that its process lives."""
_TRUST = 600.0  # seconds for which the name in a lock of another machine counts without a pulse


def is_fresh(pulse: Pulse | None, now: float) -> bool:
    """Whether a pulse says that its process lives. `now`: seconds since 1970."""
    return pulse is not None and not pulse.ended and now - pulse.time <= BEATS_MISSED * pulse.every


def process_seen(run: RunDirectory, pulse: Pulse | None, now: float) -> Holder | None:
    """The process that runs in the folder, as far as reading tells: by its pulse, else by the name in the lock (a
    killed process of another machine leaves its name there), or on an object store by a lease that has not run out."""
    if pulse is not None and is_fresh(pulse, now):
        return Holder(pulse.pid, pulse.host)
    if run.local_path is None:
        return claimant(run.storage, int(now * 1e9))
    holder = named_holder(run.local_path)
    if holder is None:
        return None
    if holder.host == os.uname().nodename:
        return holder if start_of(holder.pid) else None
    return holder if pulse is None or now - pulse.time < _TRUST else None


def how_it_ended(pulse: Pulse | None, *, is_finished: bool) -> str:
    """How the last process of a run without one ended: a key of `orchestration.run.pulse.EXIT_CODES`. A run that has no
    pulse was begun by an earlier version, or by nobody yet."""
    if is_finished:
        return FINISHED
    if pulse is None:
        return STOPPED
    return pulse.ended or KILLED


def most_steps(config: RunConfig) -> dict[str, int]:
    """The most steps that each phase takes, by its name."""
    return {
        "collect": 1,
        "sft": 1 + config.sft.epochs,
        "self_supervised": config.self_supervised.max_rounds,
        "contrastive_rl": config.contrastive_rl.steps,
        "vanilla": config.vanilla.rounds,
        "evolve": config.evolve.rounds,
    }
