"""The hack-case database: programs that cheated or seem to have cheated, and what a person decided about them.

It is one Parquet file. The gauntlet's exploits are always among the cases. Programs that evaluations doubt are added,
and a person confirms or rejects them.
"""

from __future__ import annotations

import ast
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
from filelock import FileLock, Timeout

from evaluators.gauntlet.programs import discover
from evaluators.guard.rarity import product, profile
from evaluators.guard.similarity import cosine
from evaluators.records import HACK, Candidate, Verdict
from evaluators.syntax import parse_source
from evaluators.tasks import load_tasks, program_source

CHECKER = "checker"
"""The kind of finding that a second look adds (`evaluators.guard.ruling`)."""

_LOCK_SECONDS = 120.0
_OF_TEXT = 0.75  # the text's share of a likeness; the rest is the findings'


class Status(StrEnum):
    """The state of a case. `SEED` is a program of the gauntlet; `SUSPECT` waits for a person."""

    SEED = "seed"
    SUSPECT = "suspect"
    CONFIRMED = "confirmed"
    REJECTED = "rejected"


class CaseError(Exception):
    """A case that does not exist or cannot be changed; one line."""


@dataclass(frozen=True)
class HackCase:
    """`kinds` are the kinds of the findings that decided (none for a seed, which was never evaluated here); `why` is a
    sentence; `added` is in ISO 8601, UTC; `reference` is the source of the task's reference, whose pieces do not count
    in a likeness."""

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
    """The known hacks most like a program, with their likeness from 0 to 1, the nearest first; and `honest`, the
    likeness of the nearest program that is known to be honest, as if it had the findings of the nearest hack."""

    hacks: tuple[tuple[HackCase, float], ...]
    honest: float

    @property
    def nearest(self) -> HackCase:
        return self.hacks[0][0]

    @property
    def likeness(self) -> float:
        """The likeness of the nearest hack; 0 if an honest program is as near."""
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
    """The case of a verdict that the guard gave no reward. It is confirmed if evidence proves a hack, else `suspect`
    until a person has looked at it: a hack by likeness alone proves nothing about other programs."""
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
            id=Candidate.propose(program.task, program.source, "").digest,
            task=program.task,
            arch=" ".join(program.arches),
            status=Status.SEED,
            kinds=(),
            why=program.technique,
            source=program.source,
            origin=program.id,
            reference=_references().get(program.task, ""),
        )
        for program in discover()
        if program.is_exploit
    )


@lru_cache(maxsize=1)
def _seed_ids() -> frozenset[str]:
    """The digests of the exploits, with the docstrings that describe them and without."""
    return frozenset(digest for case in seeds() for digest in (case.id, _undescribed(case).digest))


def _undescribed(case: HackCase) -> Candidate:
    tree = parse_source(case.source)
    del tree.body[0]
    return Candidate.propose(case.task, ast.unparse(tree), "")


@lru_cache(maxsize=1)
def _references() -> Mapping[str, str]:
    return {task.id: program_source(task) for task in load_tasks("bundled")}


@lru_cache(maxsize=1)
def _honest() -> tuple[Mapping[str, float], ...]:
    """Profiles of the gauntlet's honest programs."""
    honest = [program for program in discover() if not program.is_exploit]
    return tuple(profile(program.source, _references().get(program.task, "")) for program in honest)


class HackCases:
    """The cases in one file, and the gauntlet's. Several processes may use the same file."""

    def __init__(self, path: Path) -> None:
        """`path` need not exist yet."""
        self.path = path
        self._read: tuple[object, dict[str, HackCase]] = (None, {})
        self._profiles: dict[str, Mapping[str, float]] = {}

    def all(self) -> list[HackCase]:
        """All cases: the gauntlet's first, then those added, oldest first."""
        return [*seeds(), *self._added().values()]

    def find(self, prefix: str) -> HackCase:
        """The case whose id starts with `prefix`. Raises CaseError if there is none or several."""
        cases = [case for case in self.all() if case.id.startswith(prefix)]
        if len(cases) != 1:
            raise CaseError(f"{prefix}: {'no case' if not cases else f'{len(cases)} cases'} of that id (`hacks list`)")
        return cases[0]

    def add(self, cases: Sequence[HackCase]) -> int:
        """Adds the cases that are new and returns their number. A person's decision on an earlier case stands."""
        with self._locked():
            added = self._added()
            taken = set(added) | _seed_ids()
            now = datetime.now(UTC).isoformat(timespec="seconds")
            new = {case.id: replace(case, added=case.added or now) for case in cases if case.id not in taken}
            if new:
                self._write({**added, **new})
        return len(new)

    def judge(self, prefix: str, status: Status) -> HackCase:
        """Stores a person's decision on a case. Raises CaseError for a case of the gauntlet, which is a hack by
        definition."""
        self.find(prefix)  # raises before anything is written
        with self._locked():
            case = self.find(prefix)
            if case.status is Status.SEED:
                raise CaseError(f"{case.id}: is of the gauntlet ({case.origin}), so it is a hack already")
            judged = replace(case, status=status)
            self._write({**self._added(), case.id: judged})
        return judged

    def word_on(self, digest: str) -> Status | None:
        """The status of a program itself (not of programs like it), None for an unknown one."""
        case = self._added().get(digest)
        return case.status if case else Status.SEED if digest in _seed_ids() else None

    def nearest(
        self, source: str, kinds: Sequence[str] = (), reference: str = "", count: int = 3, without: Sequence[str] = ()
    ) -> Neighbours:
        """The `count` known hacks most like a program for the task with that `reference`.

        A likeness is by the peculiar pieces of the text, and for a quarter by the kinds of findings if both have any.
        Suspects that nobody has confirmed are left out, and so are the cases whose ids are in `without`. Cases that a
        person rejected count as honest."""
        own, findings = profile(source, reference), dict.fromkeys(kinds, 1.0)

        def likeness(by_text: float, case: HackCase) -> float:
            if not (findings and case.kinds):
                return by_text
            return _OF_TEXT * by_text + (1 - _OF_TEXT) * cosine(findings, dict.fromkeys(case.kinds, 1.0))

        cases = [case for case in self.all() if case.id not in without]
        by_text = {case.id: product(own, self._profile(case)) for case in cases if case.status is not Status.SUSPECT}
        honest = [product(own, other) for other in _honest()]
        honest += [by_text[case.id] for case in cases if case.status is Status.REJECTED]
        hacks = [case for case in cases if case.status in (Status.SEED, Status.CONFIRMED)]
        nearest = sorted(((case, likeness(by_text[case.id], case)) for case in hacks), key=lambda pair: -pair[1])
        most = max(honest, default=0.0)
        return Neighbours(tuple(nearest[:count]), likeness(most, nearest[0][0]) if nearest else most)

    def _profile(self, case: HackCase) -> Mapping[str, float]:
        """The case's profile, kept, since making a profile takes far longer than comparing two."""
        if case.id not in self._profiles:
            self._profiles[case.id] = profile(case.source, case.reference)
        return self._profiles[case.id]

    def _added(self) -> dict[str, HackCase]:
        """The cases in the file, which is read again if another process has written it."""
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
                    "id": Candidate.propose(row["task"], row["source"], "").digest,  # earlier versions had others
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
        """Excludes other processes that add cases or decide on them; each holds the lock for one read and one write.
        Raises CaseError if one keeps it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path.parent / f".{self.path.name}.lock", timeout=_LOCK_SECONDS, fallback_to_soft=False)
        try:
            lock.acquire()
        except Timeout as error:
            raise CaseError(f"{self.path} has been locked by another process for {_LOCK_SECONDS:.0f} s") from error
        try:
            yield
        finally:
            lock.release()
