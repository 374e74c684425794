"""What a run has still to tell MLflow: one small file a record, in the run's directory, in the order of recording.

A record stays until MLflow has it, whatever happens to the server, the process or the machine. The oldest file is the
position of the sender. Nothing here knows MLflow.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from orchestration.run.storage import Storage

_log = logging.getLogger(__name__)

FOLDER = "tracking/spool"
REFUSED = "tracking/refused"

MAX_RECORDS, MAX_BYTES = 20_000, 64 << 20
"""What may wait. Records that can be spared (system metrics) may fill half of it, other metrics all of it."""

_NAME = re.compile(r"[0-9]+-[a-z_]+\.json")
_MAX_REFUSED = 100  # files that are kept of what MLflow refused


@dataclass(frozen=True)
class Record:
    """One thing to tell MLflow. `time`: milliseconds since 1970, later than that of every earlier record."""

    name: str
    time: int
    kind: str
    body: Mapping[str, Any]


class Spool:
    """The records of one run that wait. Threads may add records while one thread takes them out."""

    def __init__(self, storage: Storage, max_records: int = MAX_RECORDS, max_bytes: int = MAX_BYTES) -> None:
        """Finds the records that earlier processes left."""
        self._storage = storage
        self._max_records, self._max_bytes = max_records, max_bytes
        sizes = {path.rpartition("/")[2]: size for path, size in storage.sizes(FOLDER, ".json").items()}
        self._sizes = {name: sizes[name] for name in sorted(sizes) if _NAME.fullmatch(name)}
        self._waiting = deque(self._sizes)
        self._bytes = sum(self._sizes.values())
        self._last = max((_time_of(name) for name in self._sizes), default=0)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def kinds(self) -> list[str]:
        """The kinds of the waiting records, from old to new."""
        with self._lock:
            return [_kind_of(name) for name in self._waiting]

    def add(self, kind: str, body: Mapping[str, Any], share: float = 1.0) -> bool:
        """Keeps a record. When this returns True, it survives a kill. False: there is no room.

        `share`: the part of the spool that such records may fill; infinite for what must not be lost. Raises OSError.
        """
        content = json.dumps(body).encode()
        with self._lock:
            is_full = len(self._waiting) >= share * self._max_records
            if is_full or self._bytes + len(content) > share * self._max_bytes:
                return False
            self._last = max(self._last + 1, time.time_ns() // 1_000_000)
            name = f"{self._last:013d}-{kind}.json"
            self._storage.write(f"{FOLDER}/{name}", content)
            self._waiting.append(name)
            self._sizes[name] = len(content)
            self._bytes += len(content)
        return True

    def oldest(self) -> Iterator[Record]:
        """The waiting records, from old to new, each read when it is asked for. For the thread that removes them."""
        with self._lock:
            names = list(self._waiting)
        for name in names:
            try:
                body = json.loads(self._storage.read(f"{FOLDER}/{name}"))
            except (FileNotFoundError, ValueError) as error:  # somebody has removed or changed it
                _log.warning("%s/%s/%s cannot be sent to MLflow: %s", self._storage, FOLDER, name, error)
                self._forget(name)
                continue
            yield Record(name, _time_of(name), _kind_of(name), body)

    def remove(self, record: Record) -> None:
        """Removes a record that MLflow has. Raises OSError, after which this process does not send it again either."""
        self._forget(record.name)
        with suppress(FileNotFoundError):
            self._storage.delete(f"{FOLDER}/{record.name}")

    def postpone(self, record: Record) -> None:
        """Puts a record behind all others, with its time in its body as `time`. Raises OSError."""
        self.add(record.kind, {"time": record.time, **record.body}, float("inf"))
        self.remove(record)

    def set_aside(self, record: Record) -> str:
        """Takes out a record that MLflow refuses for good. Returns the path of its file. Raises OSError."""
        kept = self._storage.files(REFUSED, ".json")
        for path in kept[: max(len(kept) - _MAX_REFUSED + 1, 0)]:
            self._storage.delete(path)
        path = f"{REFUSED}/{record.name}"
        self._storage.write(path, json.dumps(record.body).encode())
        self.remove(record)
        return f"{self._storage}/{path}"

    def _forget(self, name: str) -> None:
        with self._lock, suppress(ValueError):
            self._waiting.remove(name)
            self._bytes -= self._sizes.pop(name)


def _time_of(name: str) -> int:
    return int(name.partition("-")[0])


def _kind_of(name: str) -> str:
    return name.partition("-")[2].removesuffix(".json")
