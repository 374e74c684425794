"""What a run does at this moment, in one small file of its folder, for those who watch it from outside.

The process that runs replaces `pulse.json` every few seconds (`orchestration.fleet.heart`). Nothing of a resume depends
on it: a run without the file, or with an old one, is as good as any other.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from orchestration.run.storage import Storage
from orchestration.run.watchdog import STALLED

NAME = "pulse.json"
FINISHED, STOPPED, INTERRUPTED, STALL, FAILED, KILLED = (
    "finished", "stopped", "interrupted", "stalled", "failed", "killed",
)  # fmt: skip
EXIT_CODES = {FINISHED: 0, STOPPED: 0, INTERRUPTED: 130, STALL: STALLED, FAILED: 1, KILLED: 1}
"""By how a process ended, what `warpsmith run` exits with. Of one that was killed nobody knows; it counts as failed."""


class RolePulse(msgspec.Struct, frozen=True):
    """One role (`engines`, `evaluators_A100`). `queued`: items that no actor has been given; `in_work`: those that
    actors have. `busy`: the share of the time since the last beat in which its actors had work. `lost`: actors that
    were lost since the process began."""

    name: str
    queued: int
    in_work: int
    ready: int
    actors: int
    busy: float
    lost: int = 0


class Pulse(msgspec.Struct, frozen=True):
    """A run at `time` (seconds since 1970), as its process `pid` on `host` sees it, which began at `began`.

    `every`: seconds to the next beat. `phase`, `step`: what is under way. `still`: seconds without a move. `verdicts`:
    by outcome, since the process began. `ended`: how the process ended (a key of `EXIT_CODES`), empty until then;
    `message`: why.
    """

    time: float
    began: float
    every: float
    pid: int
    host: str
    phase: str = ""
    step: int = 0
    still: float = 0.0
    roles: tuple[RolePulse, ...] = ()
    verdicts: Mapping[str, int] = {}
    ended: str = ""
    message: str = ""


def write_pulse(storage: Storage, pulse: Pulse) -> None:
    """Replaces the file. Raises OSError."""
    storage.write(NAME, msgspec.json.encode(pulse))


def read_pulse(storage: Storage) -> Pulse | None:
    """The last beat; None if there is none, or none that this version reads. Raises OSError."""
    try:
        return msgspec.json.decode(storage.read(NAME), type=Pulse)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
