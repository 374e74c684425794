"""Operations on the run's file system, tried again for as long as their failure may pass.

The one place that decides which failures may pass, how long to wait, and what is said meanwhile. Nothing that is tried
here may do harm if it is done twice.
"""

from __future__ import annotations

import errno
import logging
import random
import re
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from learners.room import disk_full, is_full

_log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 20.0  # seconds; each failure doubles it

_FOR_GOOD = {
    errno.EACCES,
    errno.EBADF,
    errno.EDQUOT,
    errno.EEXIST,
    errno.EFBIG,
    errno.EINVAL,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENODEV,
    errno.ENOENT,
    errno.ENOSPC,
    errno.ENOSYS,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
    errno.ENOTSUP,
    errno.EPERM,
    errno.EROFS,
    errno.EXDEV,
}
"""Errors that waiting does not mend."""

_REFUSAL = re.compile(
    r"ACCESS_DENIED|NO_SUCH_(BUCKET|KEY)|NOT[_ ]FOUND|INVALID_(ACCESS_KEY|CLIENT_TOKEN|SIGNATURE)|UNRECOGNIZED_CLIENT"
    r"|MISSING_AUTHENTICATION|SIGNATURE_DOES_NOT_MATCH|EXPIRED_TOKEN|PERMISSION_DENIED|UNAUTHENTICATED|FORBIDDEN",
    re.IGNORECASE,
)
"""What object stores answer to a request that they will always refuse; pyarrow gives these errors no number."""

Result = TypeVar("Result")


class StorageDown(OSError):
    """A file system did not work for as long as the run had patience. The message says which, at what, for how long."""


def may_pass(error: OSError) -> bool:
    """Whether the same operation may succeed later."""
    if isinstance(error, StorageDown):
        return False
    if error.errno is not None:
        return error.errno not in _FOR_GOOD
    return not _REFUSAL.search(str(error))


class Patience:
    """Tries operations again, with growing pauses of random length, for at most `seconds` after their first failure.

    An outage is logged once, and its end. Threads may share a Patience.
    """

    def __init__(
        self,
        seconds: float = 0.0,
        *,
        first_pause: float = _FIRST_PAUSE,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """`seconds`: 0 tries nothing again. `clock` and `wait` take the place of the machine's, in seconds."""
        self.seconds = seconds
        self._first_pause, self._clock = first_pause, clock
        self._given_up = threading.Event()
        self._wait = wait or self._given_up.wait
        self._lock = threading.Lock()
        self._down_since: float | None = None

    def give_up(self) -> None:
        """Ends all waiting, also that under way in other threads: the run is to end now."""
        self._given_up.set()

    def __call__(self, operation: str, place: object, attempt: Callable[[], Result]) -> Result:
        """What `attempt` returns, once it does. `operation` and `place` name it in messages: `read state.json`, and the
        folder. Raises StorageDown after `seconds`, and at once what cannot pass, such as DiskFull."""
        first: float | None = None
        failures, is_told = 0, False
        while True:
            try:
                result = attempt()
            except OSError as error:
                if is_full(error):
                    raise disk_full(place, error) from error
                if not self.seconds or self._given_up.is_set() or not may_pass(error):
                    raise
                now = self._clock()
                first = now if first is None else first
                if (left := first + self.seconds - now) <= 0:
                    raise StorageDown(
                        f"{place}: cannot {operation}: tried for {now - first:.0f} s (storage.patience), and the last "
                        f"answer was: {_line(error)}; check the file system"
                    ) from error
                is_told = self._tell(operation, place, error, now, is_told=is_told)
                pause = min(self._first_pause * 2.0 ** min(failures, 16), _LONGEST_PAUSE)
                self._wait(min(pause * random.uniform(0.5, 1.0), left))  # ranks should not all come back at once
                failures += 1
            else:
                self._works(place)
                return result

    def _tell(self, operation: str, place: object, error: OSError, now: float, *, is_told: bool) -> bool:
        """Says that an outage has begun, if neither this operation nor another one has said so."""
        with self._lock:
            if is_new := self._down_since is None:
                self._down_since = now
        if is_new and not is_told:
            _log.warning(
                "%s: cannot %s: %s. The run waits for it, up to %g s (storage.patience)",
                place, operation, _line(error), self.seconds,
            )  # fmt: skip
        return True

    def _works(self, place: object) -> None:
        if self._down_since is None:
            return
        with self._lock:
            since, self._down_since = self._down_since, None
        if since is not None:
            _log.warning("%s: works again after %.0f s", place, self._clock() - since)


def _line(error: OSError) -> str:
    return " ".join(str(error).split())[:300]
