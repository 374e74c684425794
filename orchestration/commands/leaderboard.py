"""`warpsmith leaderboard`: programs of several sources, ranked under our verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands.pages import write_page
from orchestration.commands.refusal import refuse


def leaderboard(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]PLACE...",
            help="Files of `warpsmith kernelbench judge`, runs, bundles or published runs; NAME= gives another name.",
            show_default=False,
        ),
    ],
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the leaderboard as one HTML page.", show_default=False),
    ] = None,
    title: Annotated[str, typer.Option(help="The page's title.")] = "Leaderboard",
    over: Annotated[str, typer.Option(help="The baseline of the ranking: eager or best.")] = "eager",
    top: Annotated[int, typer.Option(min=1, help="How many programs of a source are ranked on a task.")] = 3,
    common: Annotated[
        bool, typer.Option("--common", help="Only tasks for which every source has a program on an architecture.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rankings as one line of JSON instead.")] = False,
) -> None:
    """Rank programs task by task, with intervals, outcomes and evidence."""
    from rich.console import Console

    from orchestration.kernelbench.entrants import read_entrants, split_source
    from orchestration.report.leaderboard import board_as_json, boards_of
    from orchestration.report.leaderboard_page import print_leaderboard, render_leaderboard

    if over not in ("eager", "best"):
        raise refuse(f"--over must be eager or best, got {over!r}")
    origins = [split_source(source) for source in sources]
    names = [name for name, _ in origins]
    if twice := [name for name in names if names.count(name) > 1]:
        raise refuse(f"two sources are named {twice[0]}: name them apart, as {twice[0]}-2=PLACE")
    entrants = [entrant for name, place in origins for entrant in read_entrants(name, place)]
    if not entrants:
        raise refuse(f"{', '.join(place for _, place in origins)}: no program was judged there")
    boards = boards_of(entrants, over, top, common=common)
    if not boards:
        raise refuse("--common leaves no task: there is none for which every source has a program")
    if as_json:
        print(json.dumps([board_as_json(board) for board in boards], allow_nan=False))
    else:
        print_leaderboard(boards, Console())
    if html is not None:
        write_page(html, render_leaderboard(boards, origins, title))
        if not as_json:
            print(html)
