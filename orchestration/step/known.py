"""The verdicts of a run as it goes on: those of its earlier steps are read from its directory when they are asked for.

A resume reads of every verdict which program it is on, and how fast that is believed to be; whole are only those that
a person has decided on since, and those of steps that will be done again, since that replaces their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from evaluators.records import Outcome, Verdict
from evaluators.stored.known import MOST_IN_MEMORY, Key, KnownVerdicts, Place
from orchestration.run.bundle_tables import Step
from orchestration.run.steps import StepTable
from orchestration.step.review import Reviewer

_DECIDING = ("candidate", "task", "arch", "outcome", "evaluator", "speedups")


class RunVerdicts:
    """Every verdict that a run has reached, by candidate and preset, so that no program is judged twice.

    `table`: where the steps of the run store verdicts. Without one all are of this process. Our own failures to judge
    are left out, so that a program is judged again when it is proposed again. `arch`: the only architecture whose
    verdicts count, if the run judges on several; empty if it has one.
    """

    def __init__(
        self, table: StepTable[Any] | None = None, most_in_memory: int = MOST_IN_MEMORY, *, arch: str = ""
    ) -> None:
        self._table, self._arch = table, arch
        self._known = KnownVerdicts(self._read, most_in_memory)

    @property
    def in_memory(self) -> int:
        """How many verdicts are in memory."""
        return self._known.in_memory

    def get(self, candidate: str, preset: str) -> Verdict | None:
        """The verdict on a candidate, by its digest, at a preset; None without one."""
        return self._known.get((candidate, preset))

    def put(self, verdict: Verdict) -> None:
        """Takes in a verdict that was reached, or changed, now."""
        if verdict.outcome is not Outcome.INFRA:
            self._known.put(_key(verdict), verdict)

    def stored(self, phase: str, step: int, verdicts: Mapping[str, Verdict]) -> None:
        """Says that a step's verdicts, by digest, lie in the run directory.

        A verdict of an earlier step stays there, which is less likely to be done again.
        """
        judged = (verdict for verdict in verdicts.values() if verdict.outcome is not Outcome.INFRA)
        self._known.note(((_key(verdict), _place(phase, step)) for verdict in judged), again=False)

    def resume(self, tasks: Mapping[str, str], is_committed: Callable[[Step], bool], reviewer: Reviewer) -> None:
        """Takes over what the run directory holds, and tells the reviewer what is believed of it.

        `tasks`: the digest of each task by its id; verdicts on what a task was before are left out. `is_committed`:
        whether a step of a phase is never done again.
        """
        if self._table is None:
            return
        decided = reviewer.decided()
        for phase, step in self._table.steps():
            rows = list(_summaries(self._of_arch(self._table.read_step(phase, step, _DECIDING)), tasks))
            reviewer.believe_all((row.task, row.key[0], row.believed) for row in rows)
            lasts = is_committed((phase, step))
            if lasts:
                self._known.note((row.key, _place(phase, step)) for row in rows)
            for verdict in self._whole(phase, step, {row.key for row in rows if not lasts or row.key[0] in decided}):
                current = reviewer.review_again(verdict)
                if not lasts or current is not verdict:
                    self._known.put(_key(current), current)

    def _read(self, place: Place, key: Key) -> Verdict | None:
        phase, _, step = place.rpartition("/")
        return next(iter(self._whole(phase, int(step), {key})), None)

    def _whole(self, phase: str, step: int, keys: set[Key]) -> list[Verdict]:
        """The verdicts of a step under these keys, as far as they are still there."""
        if self._table is None or not keys:
            return []
        try:
            rows = self._of_arch(self._table.read_step(phase, step))
        except FileNotFoundError:
            return []
        wanted = pc.is_in(rows["candidate"], pa.array(sorted({candidate for candidate, _ in keys})))
        verdicts = map(Verdict.from_row, rows.filter(wanted).to_pylist())
        return [each for each in verdicts if each.outcome is not Outcome.INFRA and _key(each) in keys]

    def _of_arch(self, rows: pa.Table) -> pa.Table:
        return rows.filter(pc.equal(rows["arch"], self._arch)) if self._arch else rows


class _Summary(NamedTuple):
    """What the index keeps of a row. `believed`: the speed-up over eager of a right program."""

    key: Key
    task: str
    believed: float | None


def _summaries(rows: pa.Table, tasks: Mapping[str, str]) -> Iterator[_Summary]:
    """Of the verdicts on these tasks as they are, in the columns `_DECIDING`."""
    settings = rows["evaluator"]
    eager = pc.struct_field(pc.map_lookup(rows["speedups"], "eager", "first"), "value")
    columns = (
        rows["candidate"],
        rows["task"],
        rows["outcome"],
        pc.map_lookup(settings, "preset", "first"),
        pc.map_lookup(settings, "task_digest", "first"),
        eager,
    )
    for candidate, task, outcome, preset, digest, speedup in zip(*(each.to_pylist() for each in columns), strict=True):
        if digest == tasks.get(task) and outcome != Outcome.INFRA:
            yield _Summary((candidate, preset or ""), task, speedup if outcome == Outcome.OK else None)


def _key(verdict: Verdict) -> Key:
    return verdict.candidate, verdict.evaluator.get("preset", "")


def _place(phase: str, step: int) -> Place:
    return f"{phase}/{step}"
