"""Keeps a second driver out of a run on a file system without locks, such as an object store.

Each driver writes a claim, an object of its own, and renews it. No conditional write is needed, and no clock but the
store's own: times are the modification times that it gives, and its present is that of one's own fresh write. What is
needed is that a listing shows every write that ended before it, as those of S3, GCS and their like do.

Who may hold: a claim becomes the holder's only after a listing, made after the claim was written, that shows no other
living claim. Of two drivers the one whose claim was written later lists later and sees the other, so both never hold.
Who gives way: whoever sees that a holder, or a claim written earlier than its own, is being renewed. A claim is dead if
the store's present has passed its last renewal by more than its lease.

What no lease can prevent without the store's help is one write that was under way when its process stood still, and
that arrives after another driver has taken over.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from learners.patience import Patience
from orchestration.run.errors import LeaseLost, RunDirectoryError
from orchestration.run.lock import Holder, refusal
from orchestration.run.storage import Storage

_log = logging.getLogger(__name__)

FOLDER = "lease"
_LAST = f"{FOLDER}/last"
"""The file that names the claim which became the holder's last."""

_RENEWALS = 3  # in the time of a lease
_LOOKS, _LONGEST_PAUSE = 20, 1.0  # looks in the time of a lease while others have claims; seconds between them at most
_MARGIN = 10.0  # seconds
_TRIES = 3  # to say that it holds the run before what it saw of others is too old
_LATE = 2 / 3
"""The part of a lease after which a holder does not believe that it still holds: less than what others wait."""


@dataclass(frozen=True)
class Claim:
    """A claim as it stands in its file. `seconds`: its lease. `since`: when it was written first, in the store's
    nanoseconds, 0 in the first writing. `kernel` and `started` tell the process `pid` from those of other machines,
    containers and times."""

    pid: int
    host: str
    kernel: str
    started: str
    seconds: float
    since: int = 0
    holds: bool = False
    renewals: int = 0

    @property
    def holder(self) -> Holder:
        return Holder(self.pid, self.host)


@dataclass(frozen=True)
class _Seen:
    """A claim with its name and the store's time of its last renewal, in nanoseconds."""

    key: str
    claim: Claim
    renewed: int

    @property
    def order(self) -> tuple[int, str]:
        """Sorts claims by when they were written first."""
        return self.claim.since or self.renewed, self.key

    def is_dead(self, now: int) -> bool:
        """Whether nobody renews it at the store's time `now`, or its process is known to be gone."""
        return now - self.renewed > self.claim.seconds * 1e9 or _is_gone(self.claim)


class Lease:
    """One driver's claim to the run in `storage`. `hold` waits for it, `confirm` goes before every commit."""

    def __init__(self, storage: Storage, seconds: float) -> None:
        self._storage = storage
        self._impatient = replace(storage, patience=Patience())
        self._seconds = seconds
        self._key = uuid.uuid4().hex
        self._path = f"{FOLDER}/{self._key}.json"
        self._claim = Claim(os.getpid(), os.uname().nodename, _kernel(), start_of(os.getpid()), seconds)
        self._renewed, self._took = 0, 0.0  # the last renewal: when, by the store's clock, and how long it took
        self._is_sure = False
        self._lost: LeaseLost | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Within this block no other driver holds the run. Raises RunDirectoryError if one does."""
        thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        try:
            self._take(self._storage)
            thread.start()
            yield
        finally:
            self._ended.set()
            if thread.is_alive():
                thread.join(self._seconds)
            self._withdraw()

    def confirm(self) -> None:
        """Renews the claim, and returns if no other driver can have held the run meanwhile.

        Raises LeaseLost, now and at every later call, if another one holds it or has held it; OSError if the file
        system does not work, so that nobody knows.
        """
        with self._lock:
            if self._lost is not None:
                raise self._lost
            before, stands = self._renewed, self._impatient.is_file(self._path)
            if stands:
                self._renew(self._impatient, holds=self._claim.holds)
            self._is_sure = self._is_sure and stands and self._is_in_time(before)
            if not self._is_sure:
                self._hold_again()

    def _take(self, storage: Storage, *, again: bool = False) -> None:
        """Makes the claim the holder's. Raises RunDirectoryError if another driver is to have the run, or, `again`, has
        had it since."""
        for _ in range(_TRIES):
            self._await_others(storage)
            looked = self._renewed
            if not again:
                storage.write(_LAST, self._key.encode())
            elif _read(storage, _LAST) != self._key.encode():
                raise RunDirectoryError(f"{storage}: another process has run in it")
            self._renew(storage, holds=True)
            self._is_sure = self._is_in_time(looked)
            if self._is_sure:
                return
        raise RunDirectoryError(
            f"{storage}: it took longer than its lease to say that this process runs in it; try again, or raise "
            f"storage.lease={self._seconds:g}"
        )

    def _is_in_time(self, before: int) -> bool:
        """Whether the last renewal came so soon after one at the store's time `before` that nobody can have counted the
        claim as dead between them."""
        # A store may date an object by when its upload began; it is there for others only when the upload ended.
        passed = (self._renewed - before) * 1e-9 + self._took
        return self._renewed > 0 and passed <= _LATE * self._seconds

    def _keep(self) -> None:
        """Renews the claim until the block ends."""
        pause = self._seconds / _RENEWALS
        while not self._ended.wait(pause):
            try:
                self.confirm()
                pause = self._seconds / _RENEWALS
            except LeaseLost as error:
                _log.warning("%s", error)
                return
            except OSError:  # the run's own operations say so
                pause = self._seconds / _LOOKS

    def _hold_again(self) -> None:
        """After a renewal that came late, as after an outage of the store: goes on if nobody else has held the run
        since."""
        try:
            self._take(self._impatient, again=True)
        except RunDirectoryError as error:
            self._lost = LeaseLost(
                f"{str(error).partition(';')[0]}; this one had not renewed its lease in time (storage.lease="
                f"{self._seconds:g}), and ends at its last commit"
            )
            self._withdraw()
            raise self._lost from None

    def _await_others(self, storage: Storage) -> None:
        """Returns when no other claim lives. Raises RunDirectoryError if another driver is to have the run."""
        first: dict[str, _Seen] = {}
        started, longest = time.monotonic(), self._seconds
        self._renew(storage, holds=False)
        while others := self._others(storage):
            for other in others:
                before = first.setdefault(other.key, other)
                comes_first = other.claim.holds or other.order < (self._claim.since, self._key)
                is_renewed = other.claim.pid and other.claim != before.claim
                if comes_first and is_renewed:
                    raise refusal(storage, other.claim.holder)
                if other is before and other.claim.holds:
                    _log.warning(
                        "%s: process %s may be running in it; within %g s it shows whether it is",
                        storage, other.claim.holder, other.claim.seconds,
                    )  # fmt: skip
                longest = max(longest, other.claim.seconds)
            if time.monotonic() - started > 3 * longest + _MARGIN:  # a store whose clock stands still
                raise refusal(storage, others[0].claim.holder)
            time.sleep(min(self._seconds / _LOOKS, _LONGEST_PAUSE))
            self._renew(storage, holds=False)

    def _renew(self, storage: Storage, *, holds: bool) -> None:
        self._claim, began = replace(self._claim, holds=holds, renewals=self._claim.renewals + 1), time.monotonic()
        storage.write(self._path, json.dumps(asdict(self._claim)).encode())
        self._renewed, self._took = storage.written_at(self._path), time.monotonic() - began
        self._claim = replace(self._claim, since=self._claim.since or self._renewed)

    def _others(self, storage: Storage) -> list[_Seen]:
        """The claims of others that live. Removes those that do not."""
        found = [seen for seen in _claims(storage, self._seconds) if seen.key != self._key]
        for seen in found:
            if seen.is_dead(self._renewed):
                storage.delete(f"{FOLDER}/{seen.key}.json")
        return [seen for seen in found if not seen.is_dead(self._renewed)]

    def _withdraw(self) -> None:
        with suppress(OSError):  # what stays is dead after the lease
            self._impatient.delete(self._path)


def holder_on(storage: Storage) -> Holder | None:
    """The process that holds the run in `storage` now. Writes a small object for a moment, to learn the store's time;
    without the right to write, a claim counts as alive."""
    holding = [seen for seen in _claims(storage, 0.0) if seen.claim.holds]
    if not holding:
        return None
    probe, now = f"{FOLDER}/.look-{uuid.uuid4().hex}", 0
    with suppress(OSError):
        storage.write(probe, b"")
        now = storage.written_at(probe)
        storage.delete(probe)
    return _living(holding, now)


def claimant(storage: Storage, now: int) -> Holder | None:
    """As `holder_on`, for one who writes nothing there. `now`: by a clock that may differ from the store's a little, in
    nanoseconds since 1970."""
    return _living([seen for seen in _claims(storage, 0.0) if seen.claim.holds], now)


def _living(holding: Iterable[_Seen], now: int) -> Holder | None:
    return next((seen.claim.holder for seen in holding if not seen.is_dead(now)), None)


def _claims(storage: Storage, seconds: float) -> list[_Seen]:
    """All claims. One that cannot be read, since it is just being written, counts as one of this lease in seconds, of
    process 0: the next look tells whose it is."""
    found = []
    for path, renewed in storage.times(FOLDER, ".json").items():
        content = _read(storage, path)
        if content is None:
            continue  # withdrawn
        try:
            claim = msgspec.json.decode(content, type=Claim)
        except msgspec.MsgspecError:
            claim = Claim(0, "", "", "", seconds)
        found.append(_Seen(path.removeprefix(f"{FOLDER}/").removesuffix(".json"), claim, renewed))
    return found


def _read(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except FileNotFoundError:
        return None


def _kernel() -> str:
    """The boot of this machine and the PID namespace of this process, in which a process id means one process."""
    with suppress(OSError):
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    return ""


def start_of(pid: int) -> str:
    """When a process of this machine started, in ticks since its boot; empty if it has ended."""
    with suppress(OSError, IndexError):
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state in "ZX" else rest[18]
    return ""


def _is_gone(claim: Claim) -> bool:
    """Whether the process of a claim is known to have ended: it was one of this machine, and is not there."""
    return bool(claim.kernel) and claim.kernel == _kernel() and start_of(claim.pid) != claim.started
