"""Ends a run in which nothing moves any more, after it has said what every role waits for.

Every wait of a run has a bound of its own; this is the last one, for what nobody thought of. It works in a thread, so
it needs nothing of a main thread that is blocked.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

_log = logging.getLogger(__name__)
STALLED = 3
"""The exit code of a run that was ended because nothing moved."""
LOOKS_EVERY = 1.0
END_SECONDS = 60.0
"""For the main thread to end all actors. After that, the process ends itself, and Ray ends the actors."""
_LONGEST_STEP = 10.0  # seconds between two looks that count: more means that this process was stopped
_DESCRIBE_SECONDS = 10.0
_FRAMES = 6


class Stalled(Exception):
    """Nothing has moved in a run for `stall_minutes`."""


class Watchdog:
    """Within this block, `moves()` must change at least every `seconds` (0: no bound), or the run ends.

    Then `describe()`, a line for each role, is logged, and the main thread is interrupted as by Ctrl-C. The block then
    raises Stalled. If it has not ended after `END_SECONDS`, the process ends with the exit code `STALLED`. Use as a
    context manager in the main thread, around the end of all actors. `clock`: the monotonic one. `interrupt` and `end`
    do what their names say.
    """

    def __init__(
        self,
        seconds: float,
        moves: Callable[[], Any],
        describe: Callable[[], Iterable[str]],
        *,
        clock: Callable[[], float] = time.monotonic,
        interrupt: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGINT),
        end: Callable[[int], None] = os._exit,
    ) -> None:
        self._seconds, self._moves, self._describe = seconds, moves, describe
        self._clock, self._interrupt, self._end = clock, interrupt, end
        self._seen: Any = None
        self._looked = clock()
        self._still = 0.0  # seconds without a move
        self._main = threading.main_thread()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self.stall = ""
        """What is to be said about the stall; empty as long as there is none."""

    def __enter__(self) -> Watchdog:
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        if self.stall and (kind is None or issubclass(kind, KeyboardInterrupt)):
            raise Stalled(self.stall) from None

    def look(self) -> None:
        """Compares with the last look, and ends the run if it is time. To be called often."""
        now, seen = self._clock(), self._moves()
        step, self._looked = min(now - self._looked, _LONGEST_STEP), now
        if self.stall:
            self._still += step
            if self._still >= END_SECONDS:
                _say(f"{self.stall}; it did not end in {END_SECONDS:.0f} s, and is ended at once")
                self._end(STALLED)
        elif seen != self._seen:
            self._seen, self._still = seen, 0.0
        else:
            self._still += step
            if self._still >= self._seconds:
                self.stall = f"nothing has moved for {self._still / 60:.3g} minutes (stall_minutes)"
                self._tell()
                self._still = 0.0
                self._interrupt()

    def _run(self) -> None:
        while not self._closed.wait(LOOKS_EVERY):
            try:
                self.look()
            except Exception:  # noqa: BLE001 - the watch goes on: whatever it was, it must not hide a stall
                _log.exception("the watchdog failed to look")

    def _tell(self) -> None:
        """Logs what every role waits for. A role that does not say it in time, or at all, does not delay the end."""
        lines: list[str] = []

        def describe() -> None:
            try:
                lines.extend(self._describe())
            except Exception as error:  # noqa: BLE001 - the state of other threads may change meanwhile
                lines.append(f"a role cannot be described: {error!r}")

        described = threading.Thread(target=describe, name="describe", daemon=True)
        described.start()
        described.join(_DESCRIBE_SECONDS)
        lines.append(f"driver: its main thread is in {_place_of(self._main)}")
        _log.error("%s; what waits for what:\n  %s", self.stall, "\n  ".join(lines))


def _place_of(thread: threading.Thread) -> str:
    """The functions that a thread is in, the innermost first."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return "no function"
    frames = traceback.extract_stack(frame)[-_FRAMES:]
    return ", called by ".join(f"{each.name} ({each.filename}:{each.lineno})" for each in reversed(frames))


def _say(text: str) -> None:
    """Writes to standard error, without the locks of `logging`, which a blocked thread may hold."""
    os.write(2, f"error: {text}\n".encode())
