"""Where the best programs come from: the response that proposed a program first, what its prompt showed, and where that
came from in turn.

Read from the stored prompts, so published rows, which have none, give no lineage. Only the steps that are needed are
read, one at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from evaluators.records import Candidate
from orchestration.report.keys import run_order
from orchestration.run.directory import RunDirectory
from orchestration.run.state import CONSTANT
from prompts.parse import parse_response
from prompts.shown import ShownExemplar, read_prompt

_COLUMNS = ["task_id", "candidate_digest", "prompt", "response", "finish_reason", "policy_version"]
GENERATIONS = 4
"""How far back ancestors are followed."""


@dataclass(frozen=True)
class Parent:
    """A program that a prompt showed. `speedup`: over the reference as the prompt printed it, None if it did not.

    `origin`: the response that proposed it first; None for the reference, and for a program that no policy proposed.
    """

    digest: str
    source: str
    speedup: float | None
    is_reference: bool
    author: str
    origin: Origin | None


@dataclass(frozen=True)
class Origin:
    """The response that proposed a program first: when, by which policy, and what its prompt showed.

    `analysis`, `design`: the model's own, empty if the response has none. `reference`: None if the prompt is not
    stored. `parents`: the exemplars in the order of the prompt, or the failing program of a repair turn.
    """

    phase: str
    step: int
    policy_version: int
    analysis: str
    design: str
    reference: str | None
    parents: tuple[Parent, ...]
    repairs: bool = False


class Lineages:
    """Finds origins of programs in one run directory."""

    def __init__(self, run: RunDirectory, samples: Sequence[Mapping[str, Any]]) -> None:
        """`samples`: the rows of all phases, with `phase`, `step` and `candidate_digest`."""
        self._run = run
        self._first: dict[str, tuple[str, int]] = {}
        for sample in sorted(samples, key=lambda sample: (*run_order(sample["phase"]), sample["step"])):
            if sample["candidate_digest"] and not sample["phase"].startswith(CONSTANT):
                self._first.setdefault(sample["candidate_digest"], (sample["phase"], sample["step"]))
        self._rows: dict[str, Mapping[str, Any] | None] = {}
        self._authors: dict[str, str] | None = None

    def origins_of(self, digests: Iterable[str]) -> dict[str, Origin]:
        """The origins of these programs, without those that no response proposed or whose response is not stored."""
        wanted, generations = {digest for digest in digests if digest in self._first}, 0
        self._load(wanted)
        frontier = wanted
        while frontier and generations < GENERATIONS:
            parents = {digest for child in frontier for digest in self._parents_of(child)} & self._first.keys()
            frontier = parents - self._rows.keys()
            self._load(frontier)
            generations += 1
        return {digest: origin for digest in wanted if (origin := self._origin(digest, GENERATIONS)) is not None}

    def references(self, tasks: Iterable[str]) -> dict[str, str]:
        """The reference of each task, from the first prompt on it. A task without a stored prompt is missing."""
        wanted, found = set(tasks), {}
        for phase, step in self._run.samples.steps():
            if not wanted:
                break
            table = self._run.samples.read_step(phase, step, ["task_id", "prompt"])
            for task_id in wanted & set(table["task_id"].to_pylist()):
                prompt = table.filter(pc.equal(table["task_id"], task_id))["prompt"][0].as_py()
                if (reference := read_prompt(prompt or "").reference) is not None:
                    found[task_id] = reference
            wanted -= found.keys()
        return found

    def _load(self, digests: Iterable[str]) -> None:
        """Reads the first response with each program."""
        by_step: dict[tuple[str, int], list[str]] = defaultdict(list)
        for digest in digests:
            by_step[self._first[digest]].append(digest)
        for (phase, step), of_step in by_step.items():
            table = self._run.samples.read_step(phase, step, _COLUMNS)
            chosen = table.filter(pc.is_in(table["candidate_digest"], value_set=pa.array(of_step, pa.string())))
            for row in chosen.to_pylist():
                self._rows.setdefault(row["candidate_digest"], row)

    def _parents_of(self, digest: str) -> list[str]:
        row = self._rows.get(digest)
        shown = _programs_in(row) if row else ()
        return [_digest(row, each) for each in shown if row and not each.is_reference]

    def _origin(self, digest: str, generations: int, seen: frozenset[str] = frozenset()) -> Origin | None:
        row = self._rows.get(digest)
        if row is None or generations < 0 or digest in seen:
            return None
        phase, step = self._first[digest]
        shown = read_prompt(row["prompt"] or "")
        answer = parse_response(row["response"] or "", row["finish_reason"] or "stop")
        return Origin(
            phase,
            step,
            row["policy_version"],
            answer.analysis or "",
            answer.design or "",
            shown.reference,
            tuple(self._parent(row, each, generations - 1, seen | {digest}) for each in _programs_in(row)),
            repairs=shown.failing is not None,
        )

    def _parent(self, row: Mapping[str, Any], shown: ShownExemplar, generations: int, seen: frozenset[str]) -> Parent:
        digest = _digest(row, shown)
        if shown.is_reference:
            return Parent(digest, shown.source, shown.speedup, True, "reference", None)
        origin = self._origin(digest, generations, seen)
        return Parent(digest, shown.source, shown.speedup, False, self._author(digest), origin)

    def _author(self, digest: str) -> str:
        if self._authors is None:
            table = self._run.candidates.read(columns=["digest", "author"])
            self._authors = dict(zip(table["digest"].to_pylist(), table["author"].to_pylist(), strict=True))
        return self._authors.get(digest, "")


def _programs_in(row: Mapping[str, Any]) -> tuple[ShownExemplar, ...]:
    """The programs that a response's prompt shows beside the reference."""
    shown = read_prompt(row["prompt"] or "")
    return (ShownExemplar(shown.failing, None, False),) if shown.failing else shown.exemplars


def _digest(row: Mapping[str, Any], shown: ShownExemplar) -> str:
    return Candidate.propose(row["task_id"], shown.source, "").digest
