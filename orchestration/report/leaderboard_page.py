"""A leaderboard as one self-contained HTML page, and as tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from evaluators.records import HINT, Outcome, Verdict
from orchestration.report import fast_p_tables
from orchestration.report import format as fmt
from orchestration.report.heat import HeatCell, HeatMap, tint_of
from orchestration.report.html import OUTCOMES, render_page
from orchestration.report.leaderboard import Board, Entrant, Place, Ranking
from orchestration.report.programs import ProgramView, judged_view
from orchestration.report.tables import INTERVALS, Cell, Table, share_cell, speed_cell
from orchestration.report.terminal import WIDTH, print_table

SOURCES = (
    "The best program that each source has for a task, over the board's tasks that can tell a good program from a "
    "cheat; a task without a program counts as failed. Right, faster (more than 1.01x) and first are of these tasks; "
    "speed-ups are of the right programs. First: it leads, or its interval reaches into the leader's, so that the two "
    "cannot be told apart."
)
FAST_P = (
    "KernelBench's fast_p of the best programs, over the same tasks: right, and more than p times as fast as eager."
)
_EVIDENCE = 160
"""Characters of a message in a ranking. The whole of it stands with the program."""


@dataclass(frozen=True)
class ShownPlace:
    """A row of a ranking. `rank`: `1`, `2=` if it cannot be told from the first, empty if it is not right. `compiled`:
    the speed-up over torch.compile."""

    rank: str
    source: str
    label: str
    outcome: str
    speedup: str
    interval: str
    compiled: str
    theirs: str
    evidence: str
    view: ProgramView


@dataclass(frozen=True)
class ShownRanking:
    """A task with its places."""

    task: str
    blind: str
    places: tuple[ShownPlace, ...]


def render_leaderboard(boards: Sequence[Board], origins: Sequence[tuple[str, str]], title: str = "Leaderboard") -> str:
    """The boards as the text of a page. `origins`: name and place of each source."""
    seen = {name for board in boards for source in board.sources for name in source.outcomes}
    seen |= {str(p.entrant.verdict.outcome) for board in boards for ranking in board.rankings for p in ranking.places}
    return render_page(
        "leaderboard.html",
        title=title,
        boards=[
            (
                board,
                [source_table(board), *fast_p_table(board)],
                [(source.source, source.outcomes) for source in board.sources],
                _heat(board),
                [_shown(ranking, board.over) for ranking in board.rankings],
            )
            for board in boards
        ],
        origins=origins,
        intervals=INTERVALS,
        outcome_names=[name for name in OUTCOMES if name in seen],
    )


def print_leaderboard(boards: Sequence[Board], console: Console) -> None:
    """Prints sources and the first of each task, 120 columns wide if the console is no terminal."""
    if not console.is_terminal:
        console = Console(file=console.file, width=WIDTH, no_color=True)
    for board in boards:
        console.print(f"\n[bold]{board.arch}[/bold]  measured by {', '.join(board.presets) or '-'}", highlight=False)
        for table in (source_table(board), *fast_p_table(board), _leaders(board)):
            print_table(table, console)
    console.print(f"\n{INTERVALS}", style="dim", highlight=False)


def source_table(board: Board) -> Table:
    """A row for each source."""
    rows = tuple(
        (
            each.source,
            (
                Cell(str(each.programs)),
                Cell(str(each.tasks)),
                share_cell(each.right),
                share_cell(each.faster),
                speed_cell(each.speedups.geometric_mean),
                speed_cell(each.speedups.median),
                Cell(fmt.speed(each.speedups.most)),
                Cell(str(each.first)),
            ),
        )
        for each in board.sources
    )
    columns = ("programs", "tasks", "right", "faster", "geo-mean", "median", "max", "first")
    return Table(f"Sources, over {_name(board.over)}", SOURCES, "source", columns, rows)


def fast_p_table(board: Board) -> list[Table]:
    """`fast_p` of each source by level; none if no task of the board can tell a good program from a cheat."""
    rows = tuple(row for source in board.sources for row in fast_p_tables.rows_of(source.source, source.rows, "eager"))
    return [Table("KernelBench's fast_p over eager", FAST_P, "source", fast_p_tables.columns(), rows)] if rows else []


def _leaders(board: Board) -> Table:
    rows = tuple(
        (
            ranking.task,
            (
                Cell(first.entrant.source if first.rank else fmt.NOTHING),
                speed_cell(first.speedup),
                Cell(", ".join(place.entrant.source for place in ranking.places if place.is_tied) or fmt.NOTHING),
                Cell("cannot tell" if ranking.blind else str(first.entrant.verdict.outcome)),
            ),
        )
        for ranking in board.rankings
        for first in ranking.places[:1]
    )
    return Table("First by task", "", "task", ("first", f"over {_name(board.over)}", "level with it", "outcome"), rows)


def _name(over: str) -> str:
    return "the best baseline" if over == "best" else over


def _heat(board: Board) -> HeatMap:
    """The best program of each source by task: its speed-up and its interval."""
    columns = tuple((source.source, "") for source in board.sources)
    rows = []
    for ranking in board.rankings:
        best: dict[str, Place] = {}
        for place in ranking.places:
            best.setdefault(place.entrant.source, place)
        cells = tuple(_heat_cell(ranking.task, best.get(source.source)) for source in board.sources)
        rows.append((ranking.task, cells))
    return HeatMap(columns, tuple(rows))


def _heat_cell(task: str, place: Place | None) -> HeatCell | None:
    if place is None:
        return None
    outcome = str(place.entrant.verdict.outcome)
    lines = [f"{task}, {place.entrant.source}", f"{place.entrant.label} {outcome}".strip()]
    if place.rank is None or place.speedup is None:
        return HeatCell(fmt.NOTHING, outcome, None, "\n".join(lines))
    value = place.speedup.value
    lines += [f"over {name}: {fmt.speed(each.value)}" for name, each in sorted(place.entrant.verdict.speedups.items())]
    return HeatCell(fmt.speed(value), fmt.speed_interval(place.speedup), tint_of(value), "\n".join(lines))


def _shown(ranking: Ranking, over: str) -> ShownRanking:
    return ShownRanking(ranking.task, ranking.blind, tuple(_shown_place(place) for place in ranking.places))


def _shown_place(place: Place) -> ShownPlace:
    entrant, verdict = place.entrant, place.entrant.verdict
    rank = "" if place.rank is None else f"{place.rank}{'=' if place.is_tied else ''}"
    title = " ".join(filter(None, (rank and f"{rank}:", entrant.source, entrant.label)))
    return ShownPlace(
        rank,
        entrant.source,
        entrant.label,
        str(verdict.outcome),
        fmt.speed(fmt.value_of(place.speedup)),
        fmt.speed_interval(place.speedup),
        fmt.speed(verdict.speedup_over("torch_compile")),
        entrant.theirs or fmt.NOTHING,
        evidence_of(verdict),
        judged_view(title, _soft(entrant), place.speedup, verdict, entrant.program),
    )


def _soft(entrant: Entrant) -> str:
    return " · ".join(filter(None, (str(entrant.verdict.outcome), entrant.verdict.evaluator.get("preset", ""))))


def evidence_of(verdict: Verdict) -> str:
    """What stands behind an outcome, in one line: the finding that decided, the message, or how it was checked."""
    if verdict.deciding:
        text = "; ".join(f"{finding.kind}: {finding.message}" for finding in verdict.deciding)
    elif verdict.outcome is not Outcome.OK:
        text = verdict.message
    else:
        parts = []
        if verdict.correctness:
            parts.append(f"error {verdict.correctness.error:.1e} on {verdict.correctness.trials} outputs")
        if verdict.timing:
            parts.append(f"{verdict.timing.pairs} pairs, clocks differ {100 * verdict.timing.clock_disagreement:+.1f}%")
        hints = sum(finding.severity == HINT for finding in verdict.guard)
        text = ", ".join([*parts, *([f"{hints} hint{'' if hints == 1 else 's'}"] if hints else [])])
    line = " ".join(text.split()) or fmt.NOTHING
    return line if len(line) <= _EVIDENCE else f"{line[: _EVIDENCE - 3]}..."
