"""The believed speed-ups of a run's right programs, of which the best of a task is asked for.

Every one of them counts, not the best alone: the best is no longer believed if a person finds out that it is a hack.
They lie in a temporary SQLite database, which keeps at most 8 MiB in memory, however many they are.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterable

_TABLE = """
PRAGMA journal_mode = OFF;
PRAGMA cache_size = -8192;
CREATE TABLE believed (task TEXT, candidate TEXT, speedup REAL, PRIMARY KEY (task, candidate)) WITHOUT ROWID;
CREATE INDEX fastest ON believed (task, speedup);
"""


class BelievedSpeedups:
    """Speed-ups by task and candidate."""

    def __init__(self) -> None:
        # It may be made in one thread and used in another, but not by two at once.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._database.close)
        self._database.executescript(_TABLE)

    def best_of(self, task: str) -> float | None:
        """The best one of a task, None without any."""
        query = "SELECT MAX(speedup) FROM believed WHERE task = ?"
        best: float | None = self._database.execute(query, (task,)).fetchone()[0]
        return best

    def put(self, rows: Iterable[tuple[str, str, float | None]]) -> None:
        """Takes in speed-ups of candidates, by task and digest; None: the candidate is believed no longer."""
        known = list(rows)
        self._database.execute("BEGIN")
        self._database.executemany("INSERT OR REPLACE INTO believed VALUES (?, ?, ?)", known)
        self._database.execute("COMMIT")
