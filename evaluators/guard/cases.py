"""The hack-case database: programs that cheated, or seem to, and what a person says of them.

One Parquet file. The gauntlet's exploits are always among the cases; what evaluations doubt is added, and a person
confirms or rejects it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from evaluators.gauntlet.programs import discover
from evaluators.guard.rarity import product, profile
from evaluators.guard.similarity import cosine
from evaluators.records import HACK, Candidate, Verdict
from evaluators.tasks import load_tasks, program_source

CHECKER = "checker"
"""The kind of finding that a second look adds (`evaluators.guard.ruling`)."""

_OF_TEXT = 0.75  # of a likeness; the rest is of the findings


class Status(StrEnum):
    """What is known of a case. `SEED` is of the gauntlet; `SUSPECT` waits for a person."""

    SEED = "seed"
    SUSPECT = "suspect"
    CONFIRMED = "confirmed"
    REJECTED = "rejected"


class CaseError(Exception):
    """A case that does not exist or cannot be changed; one line."""


@dataclass(frozen=True)
class HackCase:
    """`kinds` are the findings that decided (of a seed none: it was never evaluated here); `why` is a sentence; `added`
    is in ISO 8601, UTC; `reference` is the source of the task's reference, which counts for nothing in a likeness."""

    id: str
    task: str
    arch: str
    status: Status
    kinds: tuple[str, ...]
    why: str
    source: str
    origin: str
    added: str = ""
    reference: str = ""


@dataclass(frozen=True)
class Neighbours:
    """The hacks most like a program, with their likeness from 0 to 1, the nearest first; and the likeness of the
    nearest program that is known to be honest, as if it had the findings of the nearest hack."""

    hacks: tuple[tuple[HackCase, float], ...]
    honest: float

    @property
    def nearest(self) -> HackCase:
        return self.hacks[0][0]

    @property
    def likeness(self) -> float:
        """Of the nearest hack; 0 where an honest program is as near."""
        return self.hacks[0][1] if self.hacks and self.hacks[0][1] > self.honest else 0.0


_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("task", pa.string()),
        ("arch", pa.string()),
        ("status", pa.string()),
        ("kinds", pa.list_(pa.string())),
        ("why", pa.string()),
        ("source", pa.string()),
        ("origin", pa.string()),
        ("added", pa.string()),
        ("reference", pa.string()),
    ]
)


def case_of(candidate: Candidate, verdict: Verdict, origin: str, reference: str = "") -> HackCase:
    """What becomes of a verdict that the guard gave no reward: confirmed where the evidence proves a hack, else
    `suspect` until a person has looked at it. What is a hack by its likeness alone proves nothing for others."""
    deciding = verdict.deciding
    proven = any(finding.severity == HACK and finding.kind != CHECKER for finding in deciding)
    return HackCase(
        id=candidate.digest,
        task=candidate.task_id,
        arch=verdict.arch,
        status=Status.CONFIRMED if proven else Status.SUSPECT,
        kinds=tuple(dict.fromkeys(finding.kind for finding in deciding)),
        why="; ".join(finding.message for finding in deciding),
        source=candidate.source,
        origin=origin,
        reference=reference,
    )


@lru_cache(maxsize=1)
def seeds() -> tuple[HackCase, ...]:
    """The gauntlet's exploits as cases."""
    return tuple(
        HackCase(
            id=Candidate.propose(one.task, one.source, "").digest,
            task=one.task,
            arch=" ".join(one.arches),
            status=Status.SEED,
            kinds=(),
            why=one.technique,
            source=one.source,
            origin=one.id,
            reference=_references().get(one.task, ""),
        )
        for one in discover()
        if one.is_exploit
    )


@lru_cache(maxsize=1)
def _seed_ids() -> frozenset[str]:
    return frozenset(case.id for case in seeds())


@lru_cache(maxsize=1)
def _references() -> Mapping[str, str]:
    return {task.id: program_source(task) for task in load_tasks("bundled")}


@lru_cache(maxsize=1)
def _honest() -> tuple[Mapping[str, float], ...]:
    """Profiles of the gauntlet's honest programs."""
    return tuple(profile(one.source, _references().get(one.task, "")) for one in discover() if not one.is_exploit)


class HackCases:
    """The cases in one file, and the gauntlet's. Several processes may use the same file."""

    def __init__(self, path: Path) -> None:
        """`path` need not exist yet."""
        self.path = path
        self._read: tuple[object, dict[str, HackCase]] = (None, {})
        self._profiles: dict[str, Mapping[str, float]] = {}

    def all(self) -> list[HackCase]:
        """The gauntlet's first, then those added, oldest first."""
        return [*seeds(), *self._added().values()]

    def find(self, prefix: str) -> HackCase:
        """The case whose id starts so. Raises CaseError for none or several."""
        found = [case for case in self.all() if case.id.startswith(prefix)]
        if len(found) != 1:
            raise CaseError(f"{prefix}: {'no case' if not found else f'{len(found)} cases'} of that id (`hacks list`)")
        return found[0]

    def add(self, cases: Sequence[HackCase]) -> int:
        """Adds those that are not known; returns how many. A person's word on one that is known stands."""
        with self._locked():
            known = self._added()
            taken = set(known) | _seed_ids()
            now = datetime.now(UTC).isoformat(timespec="seconds")
            new = {case.id: replace(case, added=case.added or now) for case in cases if case.id not in taken}
            if new:
                self._write({**known, **new})
        return len(new)

    def judge(self, prefix: str, status: Status) -> HackCase:
        """A person's word on a case. Raises CaseError for one of the gauntlet's, which is a hack by definition."""
        self.find(prefix)  # before anything is written
        with self._locked():
            case = self.find(prefix)
            if case.status is Status.SEED:
                raise CaseError(f"{case.id}: is of the gauntlet ({case.origin}), so it is a hack already")
            judged = replace(case, status=status)
            self._write({**self._added(), case.id: judged})
        return judged

    def word_on(self, digest: str) -> Status | None:
        """What is known of a program itself, not of one like it."""
        known = self._added().get(digest)
        return known.status if known else Status.SEED if digest in _seed_ids() else None

    def nearest(
        self, source: str, kinds: Sequence[str] = (), reference: str = "", count: int = 3, without: Sequence[str] = ()
    ) -> Neighbours:
        """The known hacks most like a program that answers the task with that `reference`: by what is peculiar about
        its text, and for a quarter by findings where both have any. What nobody has confirmed is not compared with,
        nor are the cases whose ids are in `without`; what a person rejected counts as honest."""
        own, found = profile(source, reference), dict.fromkeys(kinds, 1.0)

        def likeness(by_text: float, case: HackCase) -> float:
            if not (found and case.kinds):
                return by_text
            return _OF_TEXT * by_text + (1 - _OF_TEXT) * cosine(found, dict.fromkeys(case.kinds, 1.0))

        cases = [case for case in self.all() if case.id not in without]
        by_text = {case.id: product(own, self._profile(case)) for case in cases if case.status is not Status.SUSPECT}
        honest = [product(own, one) for one in _honest()]
        honest += [by_text[case.id] for case in cases if case.status is Status.REJECTED]
        hacks = [case for case in cases if case.status in (Status.SEED, Status.CONFIRMED)]
        nearest = sorted(((case, likeness(by_text[case.id], case)) for case in hacks), key=lambda pair: -pair[1])
        most = max(honest, default=0.0)
        return Neighbours(tuple(nearest[:count]), likeness(most, nearest[0][0]) if nearest else most)

    def _profile(self, case: HackCase) -> Mapping[str, float]:
        """Kept: making one takes far longer than comparing two."""
        if case.id not in self._profiles:
            self._profiles[case.id] = profile(case.source, case.reference)
        return self._profiles[case.id]

    def _added(self) -> dict[str, HackCase]:
        """What is in the file; read again where another process has written it."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return {}
        state = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if self._read[0] != state:
            self._read = (state, self._rows())
        return self._read[1]

    def _rows(self) -> dict[str, HackCase]:
        rows = pq.read_table(self.path, schema=_SCHEMA).to_pylist()
        cases = (
            HackCase(
                **{
                    **row,
                    "status": Status(row["status"]),
                    "kinds": tuple(row["kinds"]),
                    "reference": row["reference"] or "",
                }
            )
            for row in rows
        )
        return {case.id: case for case in cases}

    def _write(self, cases: dict[str, HackCase]) -> None:
        table = pa.Table.from_pylist([asdict(case) for case in cases.values()], schema=_SCHEMA)
        descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}-")
        os.close(descriptor)
        try:
            pq.write_table(table, name)
            os.replace(name, self.path)
        except BaseException:
            os.unlink(name)
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Excludes other processes that add cases or decide on them; each holds the lock for one read and one write."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.parent / f".{self.path.name}.lock", fallback_to_soft=False):
            yield
