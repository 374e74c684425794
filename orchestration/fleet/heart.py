"""Writes a run's pulse: a background thread that tells those outside what the roles do now (`orchestration.run.pulse`).

It asks for what others know, moves nothing, and never ends or delays a run: what it cannot write it leaves out.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from learners.patience import Patience
from orchestration.fleet.ray_metrics import BusyShares, Counts, RoleFigures
from orchestration.run.pulse import (
    FAILED,
    FINISHED,
    INTERRUPTED,
    STALL,
    STOPPED,
    Pulse,
    RolePulse,
    write_pulse,
)
from orchestration.run.storage import Storage
from orchestration.run.watchdog import Stalled

_log = logging.getLogger(__name__)
SECONDS, SECONDS_REMOTE = 5.0, 30.0
"""Between two beats, on a local file system and on another one."""
_LAST_BEAT = 2.0  # seconds that the end of a run waits for its last beat
_MESSAGE = 300  # characters


class Heart:
    """Beats within this block, and once more at its end, with how it ended. `mark` says what is under way.

    `roles`, `counts` and `moves` are asked from the thread and may raise as long as they are not there yet. `is_over`:
    whether the run is finished. `clock`: seconds since 1970.
    """

    def __init__(
        self,
        storage: Storage,
        roles: Callable[[], Sequence[RoleFigures]],
        counts: Callable[[], Counts],
        moves: Callable[[], object],
        is_over: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        # Tried once: the next beat comes soon, and the run's own patience is for what it needs.
        self._storage = replace(storage, patience=Patience())
        self._roles, self._counts, self._moves, self._is_over, self._clock = roles, counts, moves, is_over, clock
        self._every = SECONDS if storage.local_path is not None else SECONDS_REMOTE
        self._doing = ("", 0)
        self._began = self._moved_at = clock()
        self._seen: object = None
        self._shares = BusyShares()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="heart", daemon=True)

    def mark(self, phase: str, step: int) -> None:
        """From here on, this step is under way."""
        self._doing = (phase, step)

    def __enter__(self) -> Heart:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join(_LAST_BEAT)
        if not self._thread.is_alive():  # else the file system does not answer, which must not delay the end
            last = threading.Thread(target=self.beat, args=self._end(kind, error), name="last beat", daemon=True)
            last.start()
            last.join(_LAST_BEAT)

    def beat(self, ended: str = "", message: str = "") -> None:
        """Writes what is so now."""
        try:
            write_pulse(self._storage, self._pulse(ended, message))
        except Exception as failure:  # noqa: BLE001 - nothing here may end a run
            _log.debug("no pulse this time: %s", failure)

    def _work(self) -> None:
        while True:
            self.beat()
            if self._closing.wait(self._every):
                return

    def _pulse(self, ended: str, message: str) -> Pulse:
        now, (phase, step) = self._clock(), self._doing
        if (seen := _or(self._moves, self._seen)) != self._seen:
            self._seen, self._moved_at = seen, now
        roles: Sequence[RoleFigures] = _or(self._roles, ())
        shares = self._shares.since_last(roles)
        verdicts: Counter[str] = Counter()
        for key, count in _or(self._counts, {}).items():
            if key[0] == "verdicts":
                verdicts[key[1]] += count
        return Pulse(
            now,
            self._began,
            self._every,
            os.getpid(),
            os.uname().nodename,
            phase,
            step,
            max(now - self._moved_at, 0.0),
            tuple(_role(role, shares) for role in roles),
            dict(verdicts),
            ended,
            message,
        )

    def _end(self, kind: type[BaseException] | None, error: BaseException | None) -> tuple[str, str]:
        """How a block ends, and why."""
        if kind is None:
            return (FINISHED if self._is_over() else STOPPED), ""
        if issubclass(kind, KeyboardInterrupt | SystemExit):
            return INTERRUPTED, ""
        why = " ".join(str(error).split())[:_MESSAGE] or kind.__name__
        return (STALL if issubclass(kind, Stalled) else FAILED), why


def _role(role: RoleFigures, shares: Mapping[str, float]) -> RolePulse:
    busy = round(shares[role.name], 3)
    return RolePulse(role.name, role.queued, role.in_work, role.ready, role.actors, busy, role.lost)


def _or(ask: Callable[[], Any], otherwise: Any) -> Any:
    """What somebody answers who may not be there yet, or whose state another thread changes meanwhile."""
    try:
        return ask()
    except Exception:  # noqa: BLE001 - nothing here may end a run
        return otherwise
