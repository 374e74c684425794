"""Makes Ctrl-C reliable: it always ends the run, and never at a moment when it does harm. Also handles the signals that
ask for an early end, and for an end at the next commit.

A signal's handler runs between any two instructions of the main thread. Python's own handler raises KeyboardInterrupt
there. Inside a library's destructor or callback, the exception is printed and dropped, and the run goes on (3 of 100
runs that were interrupted while they started). Inside an import or a call of `logging`, a lock stays taken for ever,
and every thread that needs it waits for ever.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, Self, TypeVar

AGAIN_SECONDS = 0.2
"""After this time, an interrupt that had to wait, or that nobody handles, is raised (again)."""

_LOCKING = ("<frozen importlib", logging.__file__)
"""Start of the file names of code that holds a lock which all threads need. An exception there leaves it taken."""

_finished_first: set[CodeType] = set()

Function = TypeVar("Function", bound=Callable[..., Any])


def finished_first(function: Function) -> Function:
    """Marks a function that an interrupt waits for, because it would leave processes behind if it were broken off.

    The function may take seconds, not minutes.
    """
    assert isinstance(function, FunctionType), "only a function of Python has code that a frame can name"
    _finished_first.add(function.__code__)
    return function


class Interruptible:
    """Within this block, Ctrl-C raises KeyboardInterrupt, again and again until the main thread handles it.

    Imports, calls of `logging` and functions marked `finished_first` end before that. A second Ctrl-C does not wait for
    them. Use as a context manager in the main thread, around everything that an interrupt ends. Uses SIGALRM's timer.
    """

    def __enter__(self) -> Interruptible:
        self._requested = False
        self._hook = sys.unraisablehook
        sys.unraisablehook = self._unraisable
        self._before = {
            number: signal.signal(number, handler)
            for number, handler in ((signal.SIGINT, self._interrupt), (signal.SIGALRM, self._again))
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook
        if kind is None and self._requested:
            raise KeyboardInterrupt  # the one before was lost just now

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        is_second, self._requested = self._requested, True
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS, AGAIN_SECONDS)
        if is_second or not _must_finish(frame):
            raise KeyboardInterrupt

    def _again(self, number: int, frame: FrameType | None) -> None:
        if self._requested and not _is_handled() and not _must_finish(frame):
            raise KeyboardInterrupt

    def _unraisable(self, lost: Any) -> None:
        """Replaces Python's report of a dropped exception. A dropped interrupt comes again, so it is not reported."""
        if not (self._requested and lost.exc_type is KeyboardInterrupt):
            self._hook(lost)


class _Request:
    """Within this block, a signal sets `requested`, which the training loop checks. It interrupts nothing. Use as a
    context manager in the main thread."""

    number: signal.Signals

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        self._before = signal.signal(self.number, self._request)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(self.number, self._before)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True


class EarlyEnd(_Request):
    """By SIGUSR1: the run shall end with the phase under way, which the step under way completes.

    Schedulers can send such a signal some time before a job's time ends (Slurm: `--signal=B:USR1@300`).
    """

    number = signal.SIGUSR1


class DrainOver(KeyboardInterrupt):
    """The step under way did not end in the seconds of a drain: the run ends at its last commit, as it was asked to.

    An interrupt, so that none comes again while the run's parts end.
    """


class Drain(_Request):
    """By SIGTERM: the run shall commit at the end of the step under way, and end. After `seconds` it is interrupted as
    by Ctrl-C, and ends at the commit before.

    Clusters send it to what they take a machine from. Enter it after `ray.init`, which replaces the handler.
    """

    number = signal.SIGTERM

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._limit = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
        self._limit.daemon = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limit.cancel()
        super().__exit__(kind, error, trace)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:
            self._limit.start()
        super()._request(number, frame)


def _is_handled() -> bool:
    """Whether this thread is inside an `except`, a `finally` or an `__exit__` that handles a KeyboardInterrupt."""
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _must_finish(frame: FrameType | None) -> bool:
    """Whether this frame, or one of its callers, would leave a taken lock or processes behind."""
    while frame is not None:
        if frame.f_code in _finished_first or frame.f_code.co_filename.startswith(_LOCKING):
            return True
        frame = frame.f_back
    return False
