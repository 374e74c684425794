"""Ctrl-C that arrives, at a moment when it does no harm; and a signal that asks for an early end.

A signal's handler runs between any two instructions of the main thread. Python's own raises KeyboardInterrupt there,
and that may be inside a library's destructor or callback, where it is printed and dropped, and the run goes on (3 of
100 runs that were interrupted while they started); or within an import or a call of `logging`, whose lock then stays
taken for ever, and a thread that needs it waits as long.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, TypeVar

AGAIN_SECONDS = 0.2
"""After so long, an interrupt that had to wait, or that nobody handles, is raised (again)."""

_LOCKING = ("<frozen importlib", logging.__file__)
"""Code that holds a lock which all threads need, and that an exception between two instructions leaves taken."""

_finished_first: set[CodeType] = set()

Function = TypeVar("Function", bound=Callable[..., Any])


def finished_first(function: Function) -> Function:
    """A function that an interrupt waits for: broken off, it would leave processes behind. For seconds, not minutes."""
    assert isinstance(function, FunctionType), "only a function of Python has code that a frame can name"
    _finished_first.add(function.__code__)
    return function


class Interruptible:
    """Within it, Ctrl-C raises KeyboardInterrupt, again and again until the main thread is unwinding it.

    Imports, calls of `logging` and what is `finished_first` end before; a second Ctrl-C does not wait for them.
    Use as a context manager in the main thread, around everything that an interrupt ends. Takes SIGALRM's timer.
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
            raise KeyboardInterrupt  # it was lost in the last second

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        is_second, self._requested = self._requested, True
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS, AGAIN_SECONDS)
        if is_second or not _must_finish(frame):
            raise KeyboardInterrupt

    def _again(self, number: int, frame: FrameType | None) -> None:
        if self._requested and not _is_handled() and not _must_finish(frame):
            raise KeyboardInterrupt

    def _unraisable(self, lost: Any) -> None:
        """Python's report of an exception that it drops: nothing to say about an interrupt, which comes again."""
        if not (self._requested and lost.exc_type is KeyboardInterrupt):
            self._hook(lost)


class EarlyEnd:
    """Within it, SIGUSR1 breaks nothing off: `requested` is true from then on, and whoever works looks at it.

    Schedulers can send such a signal some time before a machine goes back (Slurm: `--signal=B:USR1@300`). Use as a
    context manager in the main thread.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> EarlyEnd:
        self._before = signal.signal(signal.SIGUSR1, self._request)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGUSR1, self._before)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True


def _is_handled() -> bool:
    """Whether this thread is in a handler, a `finally` or an `__exit__` of a KeyboardInterrupt."""
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _must_finish(frame: FrameType | None) -> bool:
    """Whether this frame, or one that called it, would leave a lock or processes behind."""
    while frame is not None:
        if frame.f_code in _finished_first or frame.f_code.co_filename.startswith(_LOCKING):
            return True
        frame = frame.f_back
    return False
