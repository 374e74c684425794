"""A leaderboard: programs of several sources on the same tasks, ranked under our verdicts. Pure functions.

Only programs that were judged on one architecture stand in one ranking. Tasks that cannot tell a good program from a
cheat are shown, and count in no figure of a source.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from evaluators.records import BLIND_TASK, Estimate, Outcome, Verdict
from evaluators.reward import FASTER
from orchestration.report.fast_p import level_of
from orchestration.report.shares import share_of
from orchestration.report.statistics import AssessmentRow, SpeedSummary, estimate_as_json, summarise

_ORDER = (Outcome.OK, Outcome.SUSPECT, Outcome.HACK, Outcome.WRONG, Outcome.RUNTIME_ERROR, Outcome.TIMEOUT)
"""How outcomes follow each other in a ranking; all others come last."""


@dataclass(frozen=True)
class Entrant:
    """A program of a source, with our verdict. `program`: its text, empty if it is not known. `theirs`: in words, what
    the source says of it; empty if it says nothing."""

    source: str
    verdict: Verdict
    program: str = ""
    label: str = ""
    theirs: str = ""


@dataclass(frozen=True)
class Place:
    """An entrant in the ranking of its task. `rank`: None unless it is right. `is_tied`: its interval reaches into that
    of the first, so that the two cannot be told apart."""

    rank: int | None
    entrant: Entrant
    speedup: Estimate | None
    is_tied: bool = False


@dataclass(frozen=True)
class Ranking:
    """The programs of one task on one architecture, the best first. `blind`: why the task cannot tell a good program
    from a cheat; empty if it can."""

    task: str
    places: tuple[Place, ...]
    blind: str = ""


@dataclass(frozen=True)
class SourceSummary:
    """What a source has on an architecture, by its best program of each task; without tasks that cannot tell.

    `outcomes`: of these programs. `right`, `faster`: shares of the board's tasks, so that a task without a program
    counts as failed. `first`: tasks that it leads, or on which it cannot be told from the leader. `rows`: its best
    program of each task of the board, or none.
    """

    source: str
    programs: int
    tasks: int
    outcomes: Mapping[str, int]
    right: Estimate | None
    faster: Estimate | None
    speedups: SpeedSummary
    first: int
    rows: tuple[AssessmentRow, ...]


@dataclass(frozen=True)
class Board:
    """All rankings of one architecture. `presets`: by which the verdicts were measured."""

    arch: str
    over: str
    presets: tuple[str, ...]
    sources: tuple[SourceSummary, ...]
    rankings: tuple[Ranking, ...]


def boards_of(entrants: Sequence[Entrant], over: str = "eager", top: int = 3, *, common: bool = False) -> list[Board]:
    """A board for each architecture. `over`: the baseline of the ranking, or `best`. `top`: so many programs of each
    source are ranked on a task. `common`: only the tasks for which every source of the board has a program. Identical
    programs of a source stand there once."""
    by_arch: dict[str, list[Entrant]] = defaultdict(list)
    for entrant in _distinct(entrants):
        by_arch[entrant.verdict.arch].append(entrant)
    if common:
        by_arch = {arch: _on_common_tasks(of_arch) for arch, of_arch in by_arch.items()}
    return [_board(arch, of_arch, over, top) for arch, of_arch in sorted(by_arch.items()) if of_arch]


def _on_common_tasks(entrants: Sequence[Entrant]) -> list[Entrant]:
    sources = {each.source for each in entrants}
    with_program: dict[str, set[str]] = defaultdict(set)
    for each in entrants:
        with_program[each.verdict.task].add(each.source)
    return [each for each in entrants if with_program[each.verdict.task] == sources]


def _distinct(entrants: Sequence[Entrant]) -> list[Entrant]:
    """The last entrant of each program of a source on a task and an architecture."""
    last = {(each.source, each.verdict.task, each.verdict.arch, each.verdict.candidate): each for each in entrants}
    return list(last.values())


def _board(arch: str, entrants: Sequence[Entrant], over: str, top: int) -> Board:
    by_task: dict[str, list[Entrant]] = defaultdict(list)
    for entrant in entrants:
        by_task[entrant.verdict.task].append(entrant)
    tasks = sorted(by_task, key=lambda name: (level_of(name), _number(name), name))
    rankings = tuple(_ranking(task, by_task[task], over, top) for task in tasks)
    sources = dict.fromkeys(each.source for each in entrants)
    presets = dict.fromkeys(each.verdict.evaluator.get("preset", "") for each in entrants)
    of_sources = [_summary(name, entrants, rankings, over) for name in sources]
    return Board(
        arch,
        over,
        tuple(filter(None, presets)),
        tuple(sorted(of_sources, key=lambda each: (-each.first, -_value(each.faster), each.source))),
        rankings,
    )


def _number(task: str) -> int:
    last = task.rpartition("/")[2]
    return int(last) if last.isdecimal() else 0


def _value(estimate: Estimate | None) -> float:
    return estimate.value if estimate else 0.0


def _strength(entrant: Entrant, over: str) -> tuple[int, float]:
    """Sorts programs, the best first."""
    outcome, speedup = entrant.verdict.outcome, entrant.verdict.speedup_over(over)
    order = _ORDER.index(outcome) if outcome in _ORDER else len(_ORDER)
    return order, -speedup if speedup is not None else inf


def _ranking(task: str, entrants: Sequence[Entrant], over: str, top: int) -> Ranking:
    shown, counts = list[Entrant](), Counter[str]()
    for entrant in sorted(entrants, key=lambda each: (*_strength(each, over), each.source)):
        counts[entrant.source] += 1
        if counts[entrant.source] <= top:
            shown.append(entrant)
    first = shown[0].verdict.estimate_over(over) if shown[0].verdict.succeeded else None
    places = []
    for rank, entrant in enumerate(shown, start=1):
        speedup = entrant.verdict.estimate_over(over)
        is_tied = rank > 1 and first is not None and speedup is not None and speedup.high >= first.low
        places.append(Place(rank if entrant.verdict.succeeded else None, entrant, speedup, is_tied))
    return Ranking(task, tuple(places), _blind(entrants))


def _blind(entrants: Sequence[Entrant]) -> str:
    messages = (finding.message for each in entrants for finding in each.verdict.guard if finding.kind == BLIND_TASK)
    return next(messages, "")


def _summary(source: str, entrants: Sequence[Entrant], rankings: Sequence[Ranking], over: str) -> SourceSummary:
    seeing = [ranking for ranking in rankings if not ranking.blind]
    best, first = list[tuple[str, Entrant | None]](), 0
    for ranking in seeing:
        own = [place for place in ranking.places if place.entrant.source == source]
        best.append((ranking.task, own[0].entrant if own else None))
        first += any(place.rank == 1 or (place.rank is not None and place.is_tied) for place in own)
    tasks = [task for task, _ in best]
    right = [each is not None and each.verdict.succeeded for _, each in best]
    faster = [each is not None and (each.verdict.speedup_over(over) or 0.0) > FASTER for _, each in best]
    rows = tuple(_row(task, each) for task, each in best)
    made = summarise([row for row in rows if row.outcome != ABSENT], source)
    return SourceSummary(
        source,
        sum(each.source == source for each in entrants),
        sum(each is not None for _, each in best),
        Counter(row.outcome for row in rows if row.outcome != ABSENT),
        share_of(right, tasks),
        share_of(faster, tasks),
        made.over_best if over == "best" else made.over_eager,
        first,
        rows,
    )


ABSENT = "absent"
"""The outcome of a task without a program of a source."""


def _row(task: str, entrant: Entrant | None) -> AssessmentRow:
    return AssessmentRow.of(entrant.verdict) if entrant else AssessmentRow(task, ABSENT)


def board_as_json(board: Board) -> dict[str, Any]:
    """A board as plain data, without the programs' texts."""
    return {
        "arch": board.arch,
        "over": board.over,
        "presets": list(board.presets),
        "sources": [
            {
                "source": each.source,
                "programs": each.programs,
                "tasks": each.tasks,
                "outcomes": dict(each.outcomes),
                "right": estimate_as_json(each.right),
                "faster": estimate_as_json(each.faster),
                "geometric_mean": estimate_as_json(each.speedups.geometric_mean),
                "first": each.first,
            }
            for each in board.sources
        ],
        "tasks": [
            {
                "task": ranking.task,
                "cannot_tell": ranking.blind or None,
                "places": [
                    {
                        "rank": place.rank,
                        "tied": place.is_tied,
                        "source": place.entrant.source,
                        "program": place.entrant.label,
                        "digest": place.entrant.verdict.candidate,
                        "outcome": str(place.entrant.verdict.outcome),
                        "speedup": estimate_as_json(place.speedup),
                        "speedups": {name: asdict(each) for name, each in place.entrant.verdict.speedups.items()},
                        "findings": [asdict(finding) for finding in place.entrant.verdict.guard],
                        "theirs": place.entrant.theirs,
                    }
                    for place in ranking.places
                ],
            }
            for ranking in board.rankings
        ],
    }
