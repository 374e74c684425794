"""Verdicts that are known, by key: a bounded number in memory, all others on disk.

What is forgotten in memory is read again, from the Parquet files that hold it, or else from a temporary SQLite
database. The database also holds the index of those files, since most programs that are looked up are new: to find
that out, no file may be read. SQLite keeps at most 8 MiB of it in memory, however many verdicts there are, and the
database ends with the process.
"""

from __future__ import annotations

import pickle
import sqlite3
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable

from evaluators.records import Verdict

MOST_IN_MEMORY = 1024
"""Verdicts, of 5 to 20 kB each."""

Key = tuple[str, ...]
Place = str
"""Where a verdict is stored, in the words of whoever reads it."""

_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA cache_size = -8192;
CREATE TABLE places (key TEXT PRIMARY KEY, place TEXT) WITHOUT ROWID;
CREATE TABLE verdicts (key TEXT PRIMARY KEY, verdict BLOB);
"""


class KnownVerdicts:
    """Verdicts by key. For one thread at a time.

    `read` reads the verdict of a key from the place that `note` named; None if it is not there any more.
    """

    def __init__(
        self, read: Callable[[Place, Key], Verdict | None] | None = None, most_in_memory: int = MOST_IN_MEMORY
    ) -> None:
        self._read, self._most = read, most_in_memory
        self._recent: OrderedDict[Key, Verdict] = OrderedDict()
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._database.close)
        self._database.executescript(_TABLES)

    @property
    def in_memory(self) -> int:
        """How many verdicts are in memory."""
        return len(self._recent)

    def get(self, key: Key) -> Verdict | None:
        """The verdict that was put last under a key, or noted last; None for an unknown key."""
        verdict = self._recent.get(key)
        if verdict is None:
            verdict = self._from_disk(key)
        if verdict is not None:
            self._keep(key, verdict)
        return verdict

    def put(self, key: Key, verdict: Verdict) -> None:
        """Takes a verdict in, whatever is noted under its key."""
        self._database.execute("DELETE FROM places WHERE key = ?", (_text(key),))
        self._database.execute("DELETE FROM verdicts WHERE key = ?", (_text(key),))
        self._keep(key, verdict)

    def note(self, places: Iterable[tuple[Key, Place]], *, again: bool = True) -> None:
        """Says where verdicts are stored. Those that are in memory are stored there as they are.

        Without `again`, verdicts whose places are known stay there.
        """
        rows = [(_text(key), place) for key, place in places]
        insert = "INSERT OR REPLACE" if again else "INSERT OR IGNORE"
        self._database.execute("BEGIN")
        self._database.executemany(f"{insert} INTO places VALUES (?, ?)", rows)
        self._database.executemany("DELETE FROM verdicts WHERE key = ?", [(text,) for text, _ in rows])
        self._database.execute("COMMIT")

    def _keep(self, key: Key, verdict: Verdict) -> None:
        """Makes a verdict the most recent one; the least recent one leaves the memory if there are too many."""
        self._recent[key] = verdict
        self._recent.move_to_end(key)
        while len(self._recent) > self._most:
            oldest, forgotten = self._recent.popitem(last=False)
            if self._place_of(oldest) is None:
                row = (_text(oldest), pickle.dumps(forgotten))
                self._database.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?)", row)

    def _from_disk(self, key: Key) -> Verdict | None:
        place = self._place_of(key)
        if place is not None:
            return self._read(place, key) if self._read else None
        row = self._database.execute("SELECT verdict FROM verdicts WHERE key = ?", (_text(key),)).fetchone()
        # Nobody else can open the database, which has no name, so what is loaded is what was dumped.
        return None if row is None else pickle.loads(row[0])

    def _place_of(self, key: Key) -> Place | None:
        row = self._database.execute("SELECT place FROM places WHERE key = ?", (_text(key),)).fetchone()
        return None if row is None else str(row[0])


def _text(key: Key) -> str:
    return "\n".join(key)
